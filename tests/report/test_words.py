"""Fields and figures have names that people read, with units."""

from typing import Any

import pytest

from openmrc.report.sweep import of_path, of_value


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("fct_us.p99", "completion time, p99 (us)"),
        ("goodput_gbps.total", "goodput (Gb/s)"),
        ("goodput_gbps.plane.3", "goodput of plane 3 (Gb/s)"),
        ("workloads.1.flow_gbps.mean", "workload 2: flow mean (Gb/s)"),
        ("workloads.0.size", "workload 1: size"),
        ("transport", "transport"),
        ("transport.settings.timeout_us", "timeout (us)"),
        ("fabric.planes.0.count", "planes"),
        ("faults", "faults"),
        ("faults.0.times", "fault 1: times"),
        ("seed", "seed"),
    ],
)
def test_a_path_in_words(path: str, said: str) -> None:
    assert of_path(path) == said


def test_a_sweep_may_name_its_fields() -> None:
    assert of_path("seed", {"seed": "draw"}) == "draw"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "none"),
        ([{"loss": "0.1%"}], "loss 0.1%"),
        ({"name": "roce", "qps": 8}, "roce, qps 8"),
        ({"name": "roce", "settings": {"dcqcn": False}}, "roce, dcqcn false"),
        (131072, "131,072"),
        (True, "true"),
        ("4MiB", "4MiB"),
    ],
)
def test_a_value_in_words(value: Any, said: str) -> None:
    assert of_value(value) == said
