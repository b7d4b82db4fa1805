"""Every scenario and sweep that is shipped can be read, planned and broken as it says."""

from pathlib import Path

import pytest

from openmrc.sim.scenario.description import load
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare
from openmrc.sim.sweep import read

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted([*FOLDER.glob("*.yaml"), *FOLDER.glob("paper/*.yaml")])
SWEEPS = [path for path in FILES if path.stem.endswith("sweep")]


@pytest.mark.parametrize("path", [path for path in FILES if path not in SWEEPS], ids=lambda path: path.stem)
def test_a_shipped_scenario_can_be_run(path: Path) -> None:
    scenario = load(path)
    prepared = prepare(scenario)
    assert prepared.work.moving.size > 0
    assert len(prepared.faults.at) >= len(scenario.faults)
    assert transport_of(scenario.transport, prepared.topology).name == scenario.transport.name


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_shipped_sweep_has_its_points(path: Path) -> None:
    sweep, points = read(path)
    count = 1
    for values in sweep.fields.values():
        count *= len(values)
    assert len(points) == count
    assert len({point.digest for point in points}) == count


def test_figures_of_the_paper_name_their_source() -> None:
    for path in FILES:
        if path.parent.name == "paper" and path not in SWEEPS:
            published = load(path).published
            assert published, path
            assert all(figure.source for figure in published)
