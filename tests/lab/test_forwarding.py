"""Packets through the lab's switches: every path, hop by hop, as the plan says, with and without checksum offload."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from openmrc.fabric.addressing.paths import path
from openmrc.fabric.proof.diff import compare
from openmrc.lab import record, status
from openmrc.lab.layout import EXPORT, Lab
from openmrc.lab.namespaces import namespace
from openmrc.wire.srv6 import usids
from tests.lab.sockets import drain, mark, receive, udp

FROM, TO = 0, 3
PORT = 4791


@pytest.fixture(params=["offload", pytest.param("no offload", marks=pytest.mark.needs("ethtool"))])
def offload(lab: Lab, request: pytest.FixtureRequest) -> Iterator[None]:
    """Checksums left to hardware that does not exist hide wrong ones; without offload every one is looked at."""
    if request.param == "no offload":
        set_offload(lab, "off")
    yield
    if request.param == "no offload":
        set_offload(lab, "on")


def set_offload(lab: Lab, state: str) -> None:
    for port in lab.ports():
        where = namespace(lab.name, port.node)
        subprocess.run(
            ["ip", "netns", "exec", where, "ethtool", "-K", port.interface, "tx", state, "rx", state],
            check=True,
            capture_output=True,
        )


def test_every_path_between_two_nics_is_delivered(lab: Lab, offload: None) -> None:
    for plane in range(len(lab.plan.planes)):
        sender = udp(namespace(lab.name, "h0"), lab.plan.nic_address(plane, FROM), 5000)
        receiver = udp(namespace(lab.name, "h3"), lab.plan.nic_address(plane, TO), PORT)
        with sender, receiver:
            mark(sender, 4)
            for way in lab.ways(plane, FROM, TO):
                carrier = path(lab.plan, FROM, TO, way).address
                sender.sendto(carrier.encode(), (carrier, PORT))
                arrived = receive(receiver)
                assert (arrived.payload, arrived.source) == (carrier.encode(), lab.plan.nic_address(plane, FROM))


def test_nics_on_one_t0_reach_each_other_through_it_alone(lab: Lab) -> None:
    (way,) = lab.ways(0, 0, 1)
    assert len(path(lab.plan, 0, 1, way).nodes) == 3
    sender = udp(namespace(lab.name, "h0"), lab.plan.nic_address(0, 0), 5001)
    receiver = udp(namespace(lab.name, "h1"), lab.plan.nic_address(0, 1), PORT)
    with sender, receiver:
        sender.sendto(b"neighbour", (path(lab.plan, 0, 1, way).address, PORT))
        assert receive(receiver).payload == b"neighbour"


def test_all_nics_have_addresses_of_their_own(lab: Lab) -> None:
    planes, nics = range(len(lab.plan.planes)), range(lab.topology.nics)
    assert len({lab.plan.nic_address(plane, nic) for plane in planes for nic in nics}) == len(planes) * len(nics)


def test_switches_have_installed_exactly_what_was_planned(lab: Lab) -> None:
    for name in lab.switches():
        dump = subprocess.run(
            ["ip", "-n", namespace(lab.name, name), "-6", "-j", "route", "show"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found = compare(lab.plan, lab.topology.node_named(name), "linux", dump, name, EXPORT)
        assert (found.missing, found.extra, found.wrong) == ([], [], []), name
        assert found.same == found.planned > 0


@pytest.mark.needs("tshark")
def test_each_switch_takes_its_usid_off(lab: Lab) -> None:
    way = lab.ways(1, FROM, TO)[1]
    taken = path(lab.plan, FROM, TO, way)
    carrier = taken.address
    names = [lab.topology.name(node) for node in taken.nodes]
    listeners = [
        _capture(namespace(lab.name, name), f"p{port}") for name, port in zip(names[:-1], taken.ports, strict=True)
    ]
    sender = udp(namespace(lab.name, "h0"), lab.plan.nic_address(1, FROM), 5002)
    receiver = udp(namespace(lab.name, "h3"), lab.plan.nic_address(1, TO), PORT)
    with sender, receiver:
        deadline = time.monotonic() + 60
        while any(listener.poll() is None for listener in listeners) and time.monotonic() < deadline:
            sender.sendto(b"seen", (carrier, PORT))
            drain(receiver, 0.1)
    seen = [listener.communicate(timeout=30)[0].decode().split() for listener in listeners]
    whole = usids(_address(carrier))
    assert [usids(_address(destination)) for destination, _ in seen] == [whole[hop:] for hop in range(len(names) - 1)]
    assert [int(hops) for _, hops in seen] == [64 - hop for hop in range(len(names) - 1)]
    assert seen[-1][0] == str(_address(lab.plan.nic_address(1, TO)))


def _capture(where: str, interface: str) -> subprocess.Popen[bytes]:
    fields = ["-T", "fields", "-e", "ipv6.dst", "-e", "ipv6.hlim"]
    command = ["tshark", "-Q", "-i", interface, "-c", "1", "-f", f"udp dst port {PORT} and src port 5002", *fields]
    return subprocess.Popen(["ip", "netns", "exec", where, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _address(text: str):  # type: ignore[no-untyped-def]
    from ipaddress import IPv6Address

    return IPv6Address(text)


def test_status_counts_what_each_link_and_each_usid_carried(lab: Lab) -> None:
    before = status.status(lab.name)
    way = lab.ways(0, FROM, TO)[0]
    taken = path(lab.plan, FROM, TO, way)
    sender = udp(namespace(lab.name, "h0"), lab.plan.nic_address(0, FROM), 5003)
    receiver = udp(namespace(lab.name, "h3"), lab.plan.nic_address(0, TO), PORT)
    with sender, receiver:
        for _ in range(50):
            sender.sendto(bytes(500), (taken.address, PORT))
        assert len(drain(receiver)) == 50
    after = status.status(lab.name)
    on_path = set(zip((lab.topology.name(node) for node in taken.nodes), taken.ports, strict=False))
    for old, new in zip(before.links, after.links, strict=True):
        carried = 50 if (new.name.split(">")[0], int(new.interface[1:])) in on_path else 0
        assert carried <= new.sent - old.sent <= carried + 6, new.name  # the kernel's own: multicast listeners
        assert (new.losses, new.trimmed) == (old.losses, old.trimmed)
    own = [lab.plan.address(0, [sid]) + "/48" for sid in taken.sids[: len(taken.nodes) - 2]]  # a switch each
    grown = [new.prefix for old, new in zip(before.sids, after.sids, strict=True) if new.packets - old.packets == 50]
    assert sorted(grown) == sorted(own)


def test_a_destination_that_no_switch_knows_is_dropped_and_counted(lab: Lab) -> None:
    sender = udp(namespace(lab.name, "h0"), lab.plan.nic_address(0, FROM), 5004)
    with sender:
        for _ in range(7):
            sender.sendto(b"lost", (lab.plan.address(0, [0x1000, 0x7777]), PORT))
    deadline, errors = time.monotonic() + 20, 0
    while errors < 7 and time.monotonic() < deadline:
        found = [sid for sid in status.status(lab.name).sids if sid.prefix == "unknown" and sid.switch == "p0-t0-00"]
        errors = sum(sid.errors for sid in found)
    assert errors == 7


def test_the_record_of_a_lab_tells_its_plan(lab: Lab) -> None:
    assert record.plan(lab.name, record.read(lab.name)).cables == lab.cables
