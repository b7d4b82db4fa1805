"""Safe denial: budgets, leases, epochs, damping, and never a pair without a path."""

from __future__ import annotations

import random

import pytest

from harness.agent_hosts import HostGuard
from openmrc.ctl.denials import MOST_LEASE
from openmrc.ctl.errors import FencedError
from openmrc.operations.diagnosis.denial import HALF_LIFE_S, DenialController, DenialLimits

LIVE = DenialLimits(dry_run=False, per_minute=100, plane_share=1.0)
PLANES, UPLINKS, HOSTS = 2, 3, 4


def link(plane: int, host: int, uplink: int, up: bool) -> int:
    return ((plane * HOSTS + host) * UPLINKS + uplink) * 2 + up


def guards() -> dict[str, HostGuard]:
    def evs(source: int, peer: int) -> dict[tuple[int, int], frozenset[int]]:
        return {
            (plane, uplink): frozenset([link(plane, source, uplink, True), link(plane, peer, uplink, False)])
            for plane in range(PLANES)
            for uplink in range(UPLINKS)
        }

    hosts = range(HOSTS)
    return {
        f"h{here}": HostGuard({f"h{there}": evs(here, there) for there in hosts if there != here}) for here in hosts
    }


def controller(epoch: int = 1, limits: DenialLimits = LIVE, keeps: bool = True) -> DenialController[str]:
    return DenialController(epoch, dict.fromkeys(range(PLANES), 2 * HOSTS * UPLINKS), lambda links: keeps, limits)


def test_it_is_a_dry_run_unless_told_otherwise() -> None:
    careful = controller(limits=DenialLimits())
    assert careful.fault("a", [1], 0, now=0) == "dry run"
    assert careful.denied() == frozenset()


def test_budgets_by_minute_and_plane_refuse_what_goes_beyond() -> None:
    few = controller(limits=DenialLimits(dry_run=False, per_minute=2, plane_share=0.1))
    assert few.fault("a", [1], 0, now=0) == "denied"
    assert few.fault("b", [2, 3, 4], 0, now=1) == "budget of the plane"
    assert few.fault("c", [30], 1, now=2) == "denied"
    assert few.fault("d", [31], 1, now=59) == "budget of the minute"
    assert few.fault("d", [31], 1, now=61) == "denied"
    assert few.denied() == {1, 30, 31}


def test_what_would_cut_a_pair_is_refused() -> None:
    assert controller(keeps=False).fault("a", [1], 0, now=0) == "last path"


def test_a_flapping_part_is_lifted_later_each_time() -> None:
    calm = controller()
    waits = []
    now = 0.0
    for _ in range(4):
        calm.fault("a", [1], 0, now)
        calm.repaired("a")
        begin = now
        while not calm.lift(now):
            now += 1.0
        waits.append(now - begin)
        now += 1.0
    assert waits[0] == pytest.approx(0.415 * HALF_LIFE_S, abs=1)
    assert waits == sorted(waits)
    assert waits[-1] > 2 * waits[0]


def test_a_fault_during_the_wait_keeps_the_part_denied() -> None:
    calm = controller()
    calm.fault("a", [1], 0, 0)
    calm.repaired("a")
    assert calm.fault("a", [1], 0, 2) == "known"
    assert calm.lift(1000) == []


def test_a_host_refuses_to_leave_a_peer_without_a_path() -> None:
    guard = guards()["h0"]
    towards_h1 = frozenset(link(plane, 1, uplink, False) for plane in range(PLANES) for uplink in range(UPLINKS))
    assert guard.receive(1, towards_h1, 30, now=0) == ["h1"]
    assert len(guard.usable("h1", 0)) == PLANES * UPLINKS


def test_a_lease_longer_than_a_minute_is_refused() -> None:
    with pytest.raises(ValueError, match="lease"):
        DenialLimits(lease=MOST_LEASE + 1)


@pytest.mark.parametrize("seed", range(100))
def test_kills_and_partitions_never_leave_a_pair_without_a_path(seed: int) -> None:
    """Controllers die, return with a higher epoch, or live on behind a partition; hosts' clocks differ by minutes."""
    draw = random.Random(seed)
    hosts = guards()
    offset = {name: draw.uniform(-600, 600) for name in hosts}
    alive = [controller(epoch=1)]
    newest = 1
    last_heard = dict.fromkeys(hosts, 0.0)
    for now in range(300):
        if draw.random() < 0.03:
            newest += 1
            alive.append(controller(epoch=newest))
        if draw.random() < 0.03 and alive:
            alive.pop(draw.randrange(len(alive)))
        for each in alive:
            parts = [link(draw.randrange(PLANES), draw.randrange(HOSTS), draw.randrange(UPLINKS), draw.random() < 0.5)]
            if draw.random() < 0.5:
                each.fault(str(parts[0]), parts, 0, now)
            if draw.random() < 0.1 and each.held:
                each.repaired(draw.choice(list(each.held)))
            each.lift(now)
            for name, guard in hosts.items():
                if draw.random() < 0.5:  # the partition of this moment
                    continue
                before = guard.denials.epoch
                try:
                    guard.receive(each.epoch, each.denied(), each.limits.lease, now + offset[name])
                    last_heard[name] = now
                except FencedError:
                    assert each.epoch < before
                assert guard.denials.epoch == max(before, each.epoch)
        for name, guard in hosts.items():
            for peer in guard.paths:
                assert guard.usable(peer, now + offset[name])
    for name, guard in hosts.items():  # all controllers are gone
        end = last_heard[name] + MOST_LEASE + offset[name]
        assert all(len(guard.usable(peer, end)) == PLANES * UPLINKS for peer in guard.paths)
