"""A simulation under a page: it advances frame by frame, and what is clicked happens to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.operations.page.operated_simulation import OperatedSimulation
from openmrc.operations.page.pictures import Frame, PageAction
from openmrc.operations.page.simulation_source import SimulationSource
from openmrc.sim.scenario.description import load

SCENARIO = """
name: page
fabric:
  name: page
  hosts: {count: 4}
  planes:
    - {count: 2, host_gbps: 100, t0: {down: 2, up: 2}, t1: {down: 2}}
transport: {name: mrc}
workloads:
  - {kind: permutation, size: 4MiB}
faults:
  - {at: 30us, for: 20us, down: p1-t0-00<>p1-t1-01}
seed: 1
until: 10ms
"""
LINK = "p0-t0-00<>p0-t1-01"
MANY_PAIRS = (
    SCENARIO.replace("{count: 4}", "{count: 8}")
    .replace("t1: {down: 2}", "t1: {down: 4}")
    .replace("kind: permutation, size: 4MiB", "kind: all_to_all, size: 1MiB")
    .split("faults:")[0]
    + "seed: 1\nuntil: 10ms\n"
)


@pytest.fixture
def source(tmp_path: Path) -> SimulationSource:
    (tmp_path / "page.yaml").write_text(SCENARIO)
    return SimulationSource(load(tmp_path / "page.yaml"), step_us=10.0)


def cell_of(source: SimulationSource, link: str) -> int:
    total = sum(grid.rows * grid.columns for grid in source.picture().grids)
    (found,) = [n for n in range(total) if link in {detail.name for detail in source.cell(n)}]
    return found


def test_frames_advance_by_the_step_and_carry_load_paths_and_the_schedule(source: SimulationSource) -> None:
    frames = [source.frame() for _ in range(6)]
    assert [round(frame.at) for frame in frames] == [10, 20, 30, 40, 50, 60]
    assert sum(frames[2].goodput) > 50
    assert max(frames[2].load) > 50
    assert frames[2].pairs[0].gbps > 0
    assert {ev.plane for ev in frames[2].evs} == {0, 1}
    broken = cell_of(source, "p1-t0-00<>p1-t1-01")
    assert [frame.health[broken] for frame in frames] == [0, 0, 0, 3, 0, 0] or frames[3].health[broken] == 3
    assert any("p1-t0-00" in event.text for frame in frames for event in frame.events)


def test_a_broken_link_is_left_and_a_repaired_one_is_up(source: SimulationSource) -> None:
    source.frame()
    cell = cell_of(source, LINK)
    assert "broken" in source.act(PageAction(verb="break", target=LINK))
    frame: Frame = source.frame()
    assert frame.health[cell] == 3
    assert [event.kind for event in frame.events] == ["action"]
    later = [source.frame() for _ in range(4)][-1]
    assert later.lost > 0
    assert sum(later.goodput) > 50  # the other paths carry it
    assert source.cell(cell)[0].health == "down"
    source.act(PageAction(verb="repair", target=LINK))
    assert source.frame().health[cell] == 0
    source.act(PageAction(verb="degrade", target=LINK))
    assert source.frame().health[cell] == 1
    source.act(PageAction(verb="repair", target=LINK))
    assert source.frame().health[cell] == 0


@pytest.mark.parametrize(("loss", "drawn"), [("100%", 3), ("99%", 1)])
def test_what_loses_everything_is_drawn_as_down(tmp_path: Path, loss: str, drawn: int) -> None:
    (tmp_path / "page.yaml").write_text(
        SCENARIO.replace("down: p1-t0-00<>p1-t1-01", f"loss: {loss}, on: p1-t0-00>p1-t1-01")
    )
    made = SimulationSource(load(tmp_path / "page.yaml"), step_us=10.0)
    cell = cell_of(made, "p1-t0-00<>p1-t1-01")
    assert [made.frame().health[cell] for _ in range(6)][3] == drawn


def test_a_switch_and_a_plane_can_be_broken_and_the_run_ends(source: SimulationSource) -> None:
    source.frame()
    source.act(PageAction(verb="break", target="p0-t1-00"))
    source.act(PageAction(verb="break", target="h1 port 1"))
    assert sum(health == 3 for health in source.frame().health) >= 3
    source.act(PageAction(verb="repair", target="all"))
    for _ in range(1000):
        frame = source.frame()
        if frame.finished:
            break
    assert frame.finished
    assert not any(frame.health)


def test_addresses_are_those_of_the_plan(source: SimulationSource) -> None:
    (link,) = source.cell(cell_of(source, LINK))
    assert [text.split()[0] for text in link.addresses] == ["p0-t0-00", "p0-t1-01"]
    assert all("::/48" in text for text in link.addresses)
    (host,) = [each for each in source.cell(cell_of(source, "h0<>p0-t0-00")) if each.name == "h0<>p0-t0-00"]
    assert "uSID" in host.addresses[0]


def test_what_is_not_there_is_refused_by_name(source: SimulationSource) -> None:
    with pytest.raises(ConfigError, match="p9-t0-00"):
        source.act(PageAction(verb="break", target="p9-t0-00"))
    with pytest.raises(ConfigError, match="drain"):
        source.act(PageAction(verb="drain", target=LINK))
    with pytest.raises(ConfigError, match="cell: 99999"):
        source.cell(99999)
    with pytest.raises(ConfigError, match="nobody"):
        source.choose("nobody")
    frame = source.frame()
    source.choose(frame.pairs[-1].name)
    assert source.frame().pair == frame.pairs[-1].name


def test_endpoints_of_a_simulation_name_a_broken_cable_by_their_votes(tmp_path: Path) -> None:
    (tmp_path / "votes.yaml").write_text(MANY_PAIRS)
    source = OperatedSimulation(load(tmp_path / "votes.yaml"), step_us=10.0)
    try:
        assert source.picture().verdicts_from == "votes of entropy values"
        assert [source.frame().verdicts for _ in range(3)] == [[], [], []]
        source.act(PageAction(verb="degrade", target=LINK))
        seen: set[str] = set()
        for _ in range(60):
            seen |= {verdict.suspect for verdict in source.frame().verdicts}
        assert seen == {LINK}
    finally:
        source.close()


def test_messages_within_a_domain_cross_the_fabric_if_the_scenario_says_so(tmp_path: Path) -> None:
    domains = SCENARIO.replace("  hosts: {count: 4}", "  hosts: {count: 4}\n  scale_up: {gpus: 4, gbps: 900}")
    (tmp_path / "page.yaml").write_text(domains.replace("{name: mrc}", "{name: mrc, scale_up: false}"))
    source = SimulationSource(load(tmp_path / "page.yaml"), step_us=10.0)
    assert sum(sum(source.frame().goodput) for _ in range(3)) > 50
