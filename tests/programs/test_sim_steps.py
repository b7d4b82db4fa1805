"""`mrc sim steps`: a table of disturbances, an object, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.programs.in_process import run_here

HOUR = """
name: an hour
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 200, t0: {down: 4, up: 4}, t1: {}}]}
workloads:
  - kind: training_step
    steps: 1000000000
    compute: 150us
    collectives: [{kind: ring_all_reduce, size: 100KiB, group: 4, placement: strided}]
faults:
  - {at: 60s, for: 2s, rate: 20Gbps, on: h1 port 0}
until: 3600s
"""


@pytest.fixture
def hour(tmp_path: Path) -> Path:
    file = tmp_path / "hour.yaml"
    file.write_text(HOUR)
    return file


def test_an_hour_is_told_in_one_table(hour: Path) -> None:
    code, said, _ = run_here("sim", "steps", hour)
    assert code == 0
    assert said.startswith("an hour: ")
    assert " steps in 3,600 s on mrc" in said.splitlines()[0]
    begun = [float(number) for number in re.findall(r"\b\d+\.\d+\b", said)]
    assert min(abs(at - 60) for at in begun) < 0.01  # the step in which the port slows down begins a little before it
    assert "a calm step takes" in said.splitlines()[-1]


def test_programs_get_the_figures_as_an_object(hour: Path) -> None:
    code, said, _ = run_here("sim", "steps", hour, "--json")
    printed = json.loads(said)
    assert code == 0
    (row,) = printed["disturbances"]
    assert row["at_s"] == pytest.approx(60, abs=1e-3)
    assert 1.7e6 < row["steps"] * printed["calm_step_us"] < 2.5e6
    assert printed["steps_simulated"] < 60


def test_a_scenario_without_steps_is_refused_by_file_and_field(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    first, _, rest = HOUR.partition("  - kind: training_step")
    file.write_text(first + "  - {kind: permutation, size: 1KB}\n" + rest[rest.index("faults:") :])
    code, _, said = run_here("sim", "steps", file)
    assert code != 0
    assert "other.yaml" in said
    assert "one of kind training_step" in said
