"""What status says of ports without carrier, and of packets that a switch knows no uSID for."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from harness import labs
from openmrc.base.faults import Schedule
from openmrc.fabric.addressing.paths import path
from openmrc.fabric.export.view import view
from openmrc.lab.commands import port_back
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import EXPORT, Lab
from openmrc.lab.namespaces import batch, namespace
from openmrc.lab.status import UNKNOWN, LabStatus, SidStatus, status

SEND = "import socket, sys; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x' * 64, (sys.argv[1], 9))"


@pytest.fixture
def breaker(lab: Lab) -> Iterator[Breaker]:
    made = Breaker(lab.name)
    yield made
    made.clear()


def states(found: LabStatus) -> dict[str, str]:
    return {link.name: link.state for link in found.links if not link.up}


def unknown(found: LabStatus, switch: str) -> SidStatus:
    return next(sid for sid in found.sids if (sid.switch, sid.prefix) == (switch, UNKNOWN))


def send(lab: Lab, address: str) -> None:
    assert labs.start(lab.name, "h0", [sys.executable, "-c", SEND, address]).wait(60) == 0


def test_a_port_that_somebody_set_down_is_not_called_up(lab: Lab) -> None:
    where = namespace(lab.name, "p0-t1-00")
    assert states(status(lab.name)) == {}
    try:
        batch("ip", ["link set dev p0 down"], where)
        assert states(status(lab.name)) == {"p0-t0-00>p0-t1-00": "no carrier", "p0-t1-00>p0-t0-00": "no carrier"}
    finally:
        port = next(each.upper for each in lab.cables if (each.upper.node, each.upper.interface) == ("p0-t1-00", "p0"))
        switch = view(lab.plan, lab.topology.node_named(port.node), EXPORT)
        batch("ip", port_back(switch, port.interface), where)
    assert states(status(lab.name)) == {}


def test_a_pulled_cable_is_called_pulled(lab: Lab, breaker: Breaker) -> None:
    breaker.run(Schedule.parse("down: h1 port 1", "test"))
    assert states(status(lab.name)) == {"h1>p1-t0-00": "pulled", "p1-t0-00>h1": "pulled"}


def test_a_wrong_carrier_is_called_so_where_no_cable_was_pulled(lab: Lab) -> None:
    before = unknown(status(lab.name), "p0-t0-00").errors
    send(lab, "fcbb:bb00:1000:2fff::")
    found = unknown(status(lab.name), "p0-t0-00")
    assert found.errors == before + 1
    assert found.note == "no cable was pulled here: carriers contain a uSID that this switch does not have"


def test_errors_behind_a_pulled_cable_are_laid_to_the_cable(lab: Lab, breaker: Breaker) -> None:
    carrier = path(lab.plan, 0, 2, lab.ways(1, 0, 2)[0]).address  # up to p1-t1-00, down to the T0 whose cable is pulled
    breaker.run(Schedule.parse("down: p1-t0-01<>p1-t1-00", "test"))
    before = unknown(status(lab.name), "p1-t1-00").errors
    send(lab, carrier)
    found = unknown(status(lab.name), "p1-t1-00")
    assert found.errors == before + 1
    assert found.note == "p1 is or was without a cable, which removes the routes through it"
