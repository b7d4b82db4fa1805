"""Flows that did not finish are named, with the flow that each of them waits for."""

from __future__ import annotations

import msgspec
import numpy as np

from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.results.unfinished import UnfinishedCause, describe, unfinished
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import simulate

RING = {"kind": "ring_all_reduce", "size": 64_000, "group": 4}
FABRIC = {"name": "f", "hosts": {"count": 8}, "planes": [{"host_gbps": 100, "t0": {"down": 4, "up": 2}, "t1": {}}]}


def ran(**fields: object) -> SimulationRun:
    """Return a run of a ring on two T0s."""
    return simulate(msgspec.convert({"name": "ring", "fabric": FABRIC, "workloads": [RING], **fields}, Scenario))


def test_a_complete_run_has_nothing_unfinished() -> None:
    assert "unfinished" not in summary(ran(transport={"name": "datagrams"}))


def test_lost_datagrams_are_a_standstill_that_names_who_waits_for_whom() -> None:
    run = ran(transport={"name": "datagrams"}, faults=[{"at": "0us", "down": "h1 port 0"}])
    left = unfinished(run.work, run.results)
    assert left.cause == UnfinishedCause.STANDSTILL
    assert len(left.begun) + len(left.waiting) + int((run.results.finished[run.work.moving] < 1 << 62).sum()) == len(
        run.work.moving
    )
    assert set(left.holder.tolist()) <= set(left.begun.tolist())
    said = summary(run)
    first = said["unfinished"]["first"][0]
    assert "h1" in (first["source"], first["destination"])
    text = describe(said["unfinished"], said["flows"], "10s", said["simulated_us"])
    assert "nothing could happen after" in text
    assert f"flow {first['flow']} ({first['source']} to {first['destination']}, 16,000 bytes) did not end" in text
    assert f"{first['waited_for_by']} others wait for it" in text


def test_flows_behind_a_failed_connection_end_the_run_although_probes_go_on() -> None:
    settings = {"timeout_us": 20, "linear_count": 2, "exponential_count": 2, "evs": 8}
    run = ran(transport={"name": "mrc", "settings": settings}, faults=[{"at": "0us", "down": "h1 port 0"}])
    left = unfinished(run.work, run.results)
    assert left.cause == UnfinishedCause.FAILED
    assert run.results.now < 1_000_000_000_000  # ps: far from the limit of 10 s
    assert len(left.waiting) > 0
    assert np.isin(left.holder, left.failed).all()
    said = summary(run)
    text = describe(said["unfinished"], said["flows"], "10s", said["simulated_us"])
    assert "failed with their connections" in text


def test_a_run_whose_flows_have_all_ended_does_not_blame_its_limit() -> None:
    settings = {"timeout_us": 20, "linear_count": 2, "exponential_count": 2, "evs": 8}
    work = [{"kind": "permutation", "size": 64_000}]
    down = [{"at": "0us", "down": "h1 port 0"}]
    said = summary(ran(transport={"name": "mrc", "settings": settings}, faults=down, workloads=work))
    assert said["unfinished"]["cause"] == "failed"
    assert (said["unfinished"]["begun"], said["unfinished"]["waiting"]) == (0, 0)
    assert "raise `until`" not in describe(said["unfinished"], said["flows"], "10s", said["simulated_us"])


def test_a_run_cut_short_by_its_limit_says_so() -> None:
    run = ran(transport={"name": "datagrams"}, until="2us")
    said = summary(run)
    assert said["unfinished"]["cause"] == "limit"
    text = describe(said["unfinished"], said["flows"], "2us", said["simulated_us"])
    assert "within the limit of 2us of simulated time; raise `until`" in text


def ring_of_switches(count: int, ahead: int, until: str) -> SimulationRun:
    """Return RoCEv2 without DCQCN on switches in a ring, a NIC at each, that sends to the one `ahead` of it."""
    nodes = [
        {"name": f"{kind}{at}", "kind": name} for kind, name in (("n", "nic"), ("s", "switch")) for at in range(count)
    ]
    links = [{"a": f"n{at}", "b": f"s{at}", "gbps": 100, "link_ns": 100} for at in range(count)]
    links += [{"a": f"s{at}", "b": f"s{(at + 1) % count}", "gbps": 100, "link_ns": 100} for at in range(count)]
    return ran(
        fabric={"name": "ring", "nodes": nodes, "links": links},
        transport={"name": "roce", "settings": {"dcqcn": False}},
        workloads=[{"kind": "permutation", "size": "8MB", "stride": ahead}],
        until=until,
    )


def test_ports_that_pause_each_other_in_a_cycle_are_named() -> None:
    """Flows over two links of a ring of five, all the same way round, fill the buffers that each of them waits for."""
    run = ring_of_switches(5, ahead=2, until="1ms")
    said = summary(run)
    named = said["unfinished"]["deadlock"]
    assert sorted(named) == [f"s{at}>s{(at + 1) % 5}" for at in range(5)]
    assert all(first[-2:] == second[:2] for first, second in zip(named, named[1:] + named[:1], strict=True))
    assert "PFC deadlock: 5 ports" in describe(said["unfinished"], said["flows"], "1ms", said["simulated_us"])
    assert summary(ring_of_switches(5, ahead=1, until="300us"))["unfinished"]["deadlock"] == []
