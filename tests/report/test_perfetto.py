"""A timeline is what the trace event format says: processes, slices that do not overlap, counters, instants."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from openmrc.report import perfetto
from openmrc.sim.results.summary import SimulationRun
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate
from openmrc.units import NEVER, PS_PER_US
from tests.sim.small import STEPS

FIELDS = {"X": {"ts", "dur", "pid", "tid", "name"}, "C": {"ts", "pid", "name", "args"},
          "i": {"ts", "pid", "tid", "name", "s"}, "M": {"pid", "name", "args"}}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimulationRun:
    path = tmp_path_factory.mktemp("perfetto") / "steps.yaml"
    path.write_text(STEPS)
    return simulate(load(path))


@pytest.fixture(scope="module")
def events(run: SimulationRun, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("perfetto") / "timeline.json"
    perfetto.write(run, path)
    return list(json.loads(path.read_text())["traceEvents"])


def of(events: list[dict[str, Any]], phase: str, **given: Any) -> list[dict[str, Any]]:
    return [each for each in events if each["ph"] == phase and all(each.get(k) == v for k, v in given.items())]


def test_every_event_has_the_fields_of_its_phase(events: list[dict[str, Any]]) -> None:
    for event in events:
        assert FIELDS[event["ph"]] <= set(event)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0


def test_every_host_is_a_process_with_a_name(events: list[dict[str, Any]]) -> None:
    named = {each["pid"]: each["args"]["name"] for each in of(events, "M", name="process_name")}
    assert {f"h{host}" for host in range(16)} <= set(named.values())
    assert {each["pid"] for each in events} == set(named)


def test_every_message_is_a_slice_at_its_time(run: SimulationRun, events: list[dict[str, Any]]) -> None:
    slices = {each["args"]["flow"]: each for each in of(events, "X", cat="message")}
    assert set(slices) == set(run.work.moving.tolist())
    for flow, made in slices.items():
        assert made["ts"] == run.results.started[flow] / PS_PER_US
        assert made["dur"] == pytest.approx((run.results.finished[flow] - run.results.started[flow]) / PS_PER_US)
        assert made["args"]["bytes"] == run.work.traffic.size[flow]


def test_slices_of_a_thread_do_not_overlap_and_the_thread_is_named(events: list[dict[str, Any]]) -> None:
    named = {(each["pid"], each["tid"]) for each in of(events, "M", name="thread_name")}
    threads = defaultdict(list)
    for each in of(events, "X"):
        threads[each["pid"], each["tid"]].append((each["ts"], each["ts"] + each["dur"]))
    assert set(threads) <= named
    for spans in threads.values():
        spans.sort()
        assert all(first[1] <= second[0] + 1e-6 for first, second in itertools.pairwise(spans))


def test_collectives_computations_steps_and_faults_are_there(events: list[dict[str, Any]]) -> None:
    collectives = {each["name"] for each in of(events, "X", cat="collective")}
    assert collectives == {"step 1: ring_all_reduce", "step 2: ring_all_reduce", "permutation"}
    computed = of(events, "X", cat="compute")
    assert len(computed) == 32
    assert {each["dur"] for each in computed} == {10.0}
    assert [each["name"] for each in of(events, "X", pid=perfetto.JOB)] == ["step 1", "step 2"]
    assert [(each["ts"], each["s"]) for each in of(events, "i")] == [(3.0, "g"), (5.0, "g")]


def test_every_plane_has_its_counters(events: list[dict[str, Any]]) -> None:
    names = {each["name"] for each in of(events, "C", pid=perfetto.PLANES)}
    assert names == {f"{what}, plane {plane}" for what in ("goodput", "longest queue") for plane in (0, 1)}


def test_a_large_run_is_shown_in_part_and_says_so(
    run: SimulationRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto, "MOST_SLICES", 500)
    notes = perfetto.write(run, tmp_path / "part.json")
    made = json.loads((tmp_path / "part.json").read_text())
    shown = of(made["traceEvents"], "X", cat="message")
    assert 0 < len(shown) <= 500
    assert any("hosts" in note and "messages are shown" in note for note in notes)
    assert made["otherData"]["notes"] == notes


def test_a_message_that_never_ended_ends_with_the_run(run: SimulationRun, tmp_path: Path) -> None:
    flow = int(run.work.moving[-1])
    before = run.results.finished[flow]
    run.results.finished[flow] = NEVER
    try:
        perfetto.write(run, tmp_path / "open.json")
    finally:
        run.results.finished[flow] = before
    made = {
        each["args"]["flow"]: each
        for each in of(json.loads((tmp_path / "open.json").read_text())["traceEvents"], "X", cat="message")
    }
    assert made[flow]["args"]["finished"] == "no"
    assert made[flow]["ts"] + made[flow]["dur"] == pytest.approx(run.results.now / PS_PER_US)
