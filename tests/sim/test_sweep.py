"""What a sweep file says: which points it has, and what is refused before any runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Fabric
from openmrc.sim.sweep import Plot, Point, Sweep, figures, read, refuse_plot, unknown_names

PLANE = "{{count: {planes}, host_gbps: 100, t0: {{down: 4, up: 4}}, t1: {{down: 2}}}}"
FABRIC = "{{name: x, hosts: {{count: 8}}, planes: [" + PLANE + "]}}"
SCENARIO = f"""
name: x
fabric: {FABRIC.format(planes=2)}
transport: {{name: datagrams}}
workloads: [{{kind: permutation, size: 20KB}}]
"""


def points(folder: Path, text: str) -> list[Point]:
    (folder / "s.yaml").write_text(SCENARIO)
    (folder / "sweep.yaml").write_text("scenario: s.yaml\n" + text)
    return read(folder / "sweep.yaml")[1]


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        points(folder, text)
    return str(caught.value)


def planes(point: Point) -> list[tuple[int, float]]:
    assert isinstance(point.scenario.fabric, Fabric)
    return [(plane.count, plane.host_gbps) for plane in point.scenario.fabric.planes]


def test_fields_that_vary_together_take_their_values_in_step(tmp_path: Path) -> None:
    made = points(
        tmp_path,
        "vary: {seed: [1, 2]}\ntogether: [{fabric.planes.0.count: [4, 8], fabric.planes.0.host_gbps: [200, 100]}]\n",
    )
    assert [(point.scenario.seed, *planes(point)) for point in made] == [
        (1, (4, 200)),
        (1, (8, 100)),
        (2, (4, 200)),
        (2, (8, 100)),
    ]


def test_fabrics_can_be_files_beside_the_sweep(tmp_path: Path) -> None:
    for count in (2, 4):
        (tmp_path / f"f{count}.yaml").write_text(FABRIC.format(planes=count))
    made = points(tmp_path, "vary: {fabric: [f2.yaml, f4.yaml], fabric.planes.0.host_gbps: [50]}\n")
    assert [planes(point) for point in made] == [[(2, 50)], [(4, 50)]]
    assert "f9.yaml: file not found" in refused(tmp_path, "vary: {fabric: [f9.yaml]}\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("together: [{seed: [1, 2], until: [1ms]}]\n", "together: lists of different lengths: {'seed': 2, 'until': 1}"),
        ("vary: {seed: [1]}\ntogether: [{seed: [1]}]\n", "seed: varied twice"),
        ("vary: {seed: [1]}\nplot: {x: until}\n", "plot: 'until' is not varied; varied fields: seed"),
        ("{}\n", "not YAML"),
        ("plot: {x: seed}\n", "vary: empty"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, why: str) -> None:
    assert why in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("line", "text", "why"),
    [
        (4, "vary:\n  seed: [1]\n  transport.name: [mrc, mrk]\n", "transport.name: Invalid enum value 'mrk'"),
        (4, "vary:\n  seed: [1]\n  transport.name: [mrc, mrk]\n", "did you mean mrc? Known are datagrams, mrc"),
        (3, "vary:\n  transport.name: [1]\n", "Known are datagrams, mrc"),
        (3, "vary:\n  workloads.0.size: [1PiB]\n", "that is a size such as 2MB, 64KiB or 4096 (bytes), got '1PiB'"),
        (4, "vary:\n  seed: [1]\n  until: [1ms, 0ms]\n", "until: '0ms': expected a time above 0; this point has"),
        (3, "vary:\n  workloads.4.size: [1MB]\n", "the scenario has no field '4' there; it has 0 to 0"),
        (3, "together:\n  - {seed: [1, 2], until: [1ms, 1m]}\n", "until: Expected `str` that is a time such as 50us"),
        (3, "vary:\n  fabric.planes.0.t1: [{down: 1}]\n", "plane 0: t1.down = 1, but 2 T0s need 2 ports"),
        (4, "vary:\n  seed: [1]\nplot: {x: until}\n", "plot: 'until' is not varied; varied fields: seed"),
        (
            4,
            "together:\n  - {seed: [1]}\n  - {until: [1ms, 2ms], transport.mtu: [4096]}\n",
            "lists of different lengths",
        ),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_line_and_what_can_be(
    tmp_path: Path, line: int, text: str, why: str
) -> None:
    said = refused(tmp_path, text).removeprefix(f"{tmp_path}/")
    assert said.startswith(f"sweep.yaml:{line}: ")
    assert why in said


def test_a_plot_of_what_no_run_has_is_refused_with_the_nearest() -> None:
    summary = {"fct_us": {"p99": 1.0, "mean": None}, "name": "x", "goodput_gbps": {"plane": [1.0, 2.0]}}
    assert figures(summary) == ["fct_us.p99", "fct_us.mean", "goodput_gbps.plane.0", "goodput_gbps.plane.1"]
    with pytest.raises(ConfigError, match=r"'fct_us.p9' is not a number of the summary; similar: fct_us\.p99"):
        refuse_plot(_with_plot("fct_us.p9"), summary)
    for known in ("goodput_gbps.plane.1", "fct_us.mean"):  # no flow of this run has finished; of others some may have
        refuse_plot(_with_plot(known), summary)


def test_a_name_for_what_is_neither_varied_nor_found_is_reported_with_the_nearest() -> None:
    named = {"seed": "draw", "fct_us.p99": "slowest", "seeds": "draws"}
    (warning,) = unknown_names(Sweep(scenario="x", vary={"seed": [1]}, names=named), [{}, {"fct_us": {"p99": 1.0}}])
    assert warning == "names: 'seeds' is neither a varied field nor a number of a summary; similar: seed"


def _with_plot(y: str) -> Sweep:
    return Sweep(scenario="x", vary={"seed": [1]}, plot=Plot(x="seed", y=y))
