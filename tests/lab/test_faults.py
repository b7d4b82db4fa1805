"""Cables that are pulled, lossy, slow, one way only; and that everything is as before when they are mended."""

from __future__ import annotations

import json
import subprocess

import pytest

from openmrc.base.faults import Schedule
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import path
from openmrc.lab import record, status
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import await_ports, namespace
from tests.lab.sockets import drain, mark, udp

PORT = 4791


@pytest.fixture
def breaker(lab: Lab):  # type: ignore[no-untyped-def]
    made = Breaker(lab.name)
    yield made
    made.clear()
    for node in (*lab.nics(), *lab.switches()):
        own = [port.interface for port in lab.ports() if port.node == node]
        await_ports(namespace(lab.name, node), own)


def do(breaker: Breaker, terms: str) -> None:
    breaker.run(Schedule.parse(terms))


def crossing(lab: Lab, plane: int, uplink: int, count: int = 20, source: int = 0, destination: int = 3) -> int:
    """Return how many of `count` datagrams get across on a path."""
    way = next(way for way in lab.ways(plane, source, destination) if way.uplink == uplink)
    sender = udp(namespace(lab.name, f"h{source}"), lab.plan.nic_address(plane, source), 5100)
    receiver = udp(namespace(lab.name, f"h{destination}"), lab.plan.nic_address(plane, destination), PORT)
    with sender, receiver:
        mark(sender, 4)
        for _ in range(count):
            sender.sendto(bytes(200), (path(lab.plan, source, destination, way).address, PORT))
        return len(drain(receiver, 0.5))


def routes(lab: Lab, switch: str) -> list[str]:
    shown = subprocess.run(
        ["ip", "-n", namespace(lab.name, switch), "-6", "-j", "route", "show"], capture_output=True, check=True
    ).stdout
    return sorted(f"{each['dst']} {each.get('gateway')} {each['dev']}" for each in json.loads(shown))


def carrier(lab: Lab, node: str, interface: str) -> bool:
    shown = subprocess.run(
        ["ip", "-n", namespace(lab.name, node), "-j", "link", "show", "dev", interface], capture_output=True, check=True
    ).stdout
    return "NO-CARRIER" not in json.loads(shown)[0]["flags"]


def test_a_pulled_cable_carries_nothing_and_the_others_everything(lab: Lab, breaker: Breaker) -> None:
    do(breaker, "down: p0-t0-00<>p0-t1-01")
    assert [crossing(lab, 0, uplink) for uplink in (0, 1)] == [20, 0]
    assert [crossing(lab, 1, uplink) for uplink in (0, 1)] == [20, 20]
    assert not carrier(lab, "p0-t0-00", "p3")  # the other end sees it go


def test_a_cable_that_is_back_has_all_its_routes_again(lab: Lab, breaker: Breaker) -> None:
    before = {name: routes(lab, name) for name in lab.switches()}
    do(breaker, "down: p0-t1-01; at: 100ms, up: p0-t1-01")
    await_ports(namespace(lab.name, "p0-t0-00"), ["p3"])
    assert {name: routes(lab, name) for name in lab.switches()} == before
    assert crossing(lab, 0, 1) == 20
    assert breaker.record.down == []


@pytest.mark.parametrize(
    ("terms", "cables"), [("down: p1-t0-01", 4), ("down: p1-t1-00", 2), ("down: plane 1", 8), ("down: h2 port 1", 1)]
)
def test_switches_planes_and_ports_go_down_by_name(lab: Lab, breaker: Breaker, terms: str, cables: int) -> None:
    do(breaker, terms)
    assert len(record.read(lab.name).down) == cables
    assert sum(not link.up for link in status.status(lab.name, with_sids=False).links) == 2 * cables


def test_a_fault_may_strike_one_direction_only(lab: Lab, breaker: Breaker) -> None:
    do(breaker, "down: p0-t0-00>p0-t1-00")
    assert crossing(lab, 0, 0, source=0, destination=3) == 0
    assert crossing(lab, 0, 0, source=3, destination=0) == 20
    assert record.read(lab.name).down == []


def test_losses_come_at_their_share(lab: Lab, breaker: Breaker) -> None:
    do(breaker, "loss: 30%, on: h0 port 1")
    assert 150 <= crossing(lab, 1, 0, count=300) <= 270  # 210, and 7.5 standard deviations


def test_a_slower_rate_is_kept_by_the_queue(lab: Lab, breaker: Breaker) -> None:
    do(breaker, "rate: 2Mbps, on: p0-t0-00>p0-t1-00")
    shown = subprocess.run(
        ["tc", "-n", namespace(lab.name, "p0-t0-00"), "class", "show", "dev", "p2"], capture_output=True, text=True
    ).stdout
    assert "ceil 2Mbit" in shown
    breaker.clear()
    shown = subprocess.run(
        ["tc", "-n", namespace(lab.name, "p0-t0-00"), "class", "show", "dev", "p2"], capture_output=True, text=True
    ).stdout
    assert "ceil 100Mbit" in shown


def test_a_schedule_is_kept_in_time(lab: Lab, breaker: Breaker) -> None:
    done = breaker.run(Schedule.parse("at: 100ms, for: 50ms, every: 200ms, times: 3, down: h1 port 0"))
    assert [step.change["down"] for step in done] == [True, False] * 3
    due = [0.1, 0.15, 0.3, 0.35, 0.5, 0.55]
    assert all(step.at_s >= at for step, at in zip(done, due, strict=True))  # late on a slow machine, never early
    assert [round(step.at_s - step.late_ms / 1e3, 3) for step in done] == due


def test_faults_are_remembered_by_the_next_command(lab: Lab, breaker: Breaker) -> None:
    do(breaker, "down: h0 port 0")
    again = Breaker(lab.name)
    do(again, "loss: 1%, on: plane 1")
    assert len(record.read(lab.name).down) == 1
    do(again, "up: h0 port 0")
    assert record.read(lab.name).down == []
    breaker._now = again._now
    breaker.record = again.record


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ("delay: 1ms", "a lab does not support 'delay'; use down, loss, trim, corruption, rate"),
        ("down: p9-t0-00", "no node is called 'p9-t0-00'"),
        ("down: plane 7", "plane 7 does not exist"),
        ("explode: h0", "unknown word 'explode'"),
    ],
)
def test_what_a_lab_cannot_do_is_refused_before_anything_is_done(
    lab: Lab, breaker: Breaker, terms: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        do(breaker, terms)
    assert record.read(lab.name).impairments == {}
