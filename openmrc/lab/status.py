"""Counters of a lab's links and uSIDs: sent, arrived, marked, trimmed and lost packets, read from the kernel."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from openmrc.errors import MrcError
from openmrc.lab import kernel_maps, namespaces, record
from openmrc.lab.accounting import DeviceCounters, Losses, QueueCounters, account, read_devices, read_queues
from openmrc.lab.commands import ports_by_node
from openmrc.lab.layout import Cable, CableEnd, Lab
from openmrc.lab.namespaces import namespace
from openmrc.lab.port import PortCounters

T = TypeVar("T")

UNKNOWN = "unknown"  # counts destinations that match no uSID of a switch


class LinkStatus(msgspec.Struct, kw_only=True):
    """One direction of a cable."""

    name: str  # SOURCE>DESTINATION
    plane: int
    tier: str
    interface: str  # at the source
    up: bool
    state: str  # up, pulled (by a fault), or no carrier: set down at either end by another program
    gbps: float
    sent: int  # packets that the source gave to its port: arrived + waiting + losses + unaccounted
    arrived: int
    waiting: int  # in the queue now
    losses: Losses
    unaccounted: int  # packets that moved while the counters were read; 0 without traffic
    bytes: int  # on the wire
    control: int
    marked: int
    trimmed: int
    corrupted: int
    longest_queue_us: float


class SidStatus(msgspec.Struct, kw_only=True):
    """One uSID of a switch; `unknown` counts destinations that match no uSID of the switch."""

    switch: str
    prefix: str
    action: str
    packets: int
    bytes: int
    errors: int  # of `unknown`: packets dropped without a matching uSID
    note: str = ""  # of `unknown` with errors: their likely origin


class LabStatus(msgspec.Struct, kw_only=True):
    """All counters of a lab."""

    name: str
    trimming: bool
    nics: int
    switches: int
    down: list[str]
    links: list[LinkStatus]
    sids: list[SidStatus]


def status(name: str, with_sids: bool = True) -> LabStatus:
    namespaces.require_root()
    written = record.read(name)
    lab = record.plan(name, written)
    dark = _without_carrier(lab)
    nodes = {port.node for port in lab.ports()}
    # What arrived is read first, what was sent last: packets that move meanwhile make the rest positive.
    devices = {node: read_devices(namespace(name, node)) for node in nodes}
    queues = {node: read_queues(namespace(name, node)) for node in nodes}
    ends = _KernelCounters(devices, queues, dark)
    links = [
        _link(written, here, there, cable, ends)
        for cable in lab.cables
        for here, there in ((cable.lower, cable.upper), (cable.upper, cable.lower))
    ]
    return LabStatus(
        name=name,
        trimming=written.trimming,
        nics=lab.topology.nics,
        switches=lab.topology.nodes - lab.topology.nics,
        down=written.down,
        links=links,
        sids=list(_all_sids(lab, written, dark)) if with_sids else [],
    )


@dataclass(frozen=True)
class _KernelCounters:
    """What the kernel says of the ports, by node."""

    devices: dict[str, dict[str, DeviceCounters]]
    queues: dict[str, dict[str, QueueCounters]]
    dark: set[tuple[str, str]]  # without a carrier: (node, interface)


def _of_port(found: dict[str, dict[str, T]], port: CableEnd) -> T:
    """Look a port up; MrcError: with a namespace went the ports at the other ends of its cables, this one, too."""
    try:
        return found[port.node][port.interface]
    except KeyError:
        raise MrcError(f"{port.node} has no port {port.interface}; is the lab being removed?") from None


def _without_carrier(lab: Lab) -> set[tuple[str, str]]:
    """Return (node, interface) of every port that has no carrier."""
    return {
        (node, device)
        for node, ports in ports_by_node(lab).items()
        for device in namespaces.without_carrier(namespace(lab.name, node), [port.interface for port, _ in ports])
    }


def counters(written: record.Record, port: CableEnd) -> PortCounters:
    return PortCounters.unpack(kernel_maps.read(written.maps.queue, PortCounters.SIZE, port.link))


def _link(written: record.Record, here: CableEnd, there: CableEnd, cable: Cable, ends: _KernelCounters) -> LinkStatus:
    counted = counters(written, here)
    no_carrier = any((port.node, port.interface) in ends.dark for port in (here, there))
    state = "pulled" if cable.name in written.down else "no carrier" if no_carrier else "up"
    own, other = (_of_port(ends.devices, port) for port in (here, there))
    was_down = no_carrier or cable.name in written.was_down
    found = account(counted, _of_port(ends.queues, here), own, other, was_down)
    return LinkStatus(
        name=f"{here.node}>{there.node}",
        plane=cable.plane,
        tier=cable.tier.name.lower(),
        interface=here.interface,
        up=state == "up",
        state=state,
        gbps=here.rate / 1e9,
        **vars(found),
        unaccounted=found.unaccounted,
        bytes=counted.wire_bytes,
        **{name: getattr(counted, name) for name in ("control", "marked", "trimmed", "corrupted")},
        longest_queue_us=round(counted.longest_ns / 1000, 1),
    )


def _all_sids(lab: Lab, written: record.Record, dark: set[tuple[str, str]]) -> Iterator[SidStatus]:
    cut: dict[str, set[str]] = defaultdict(set)  # ports whose routes are or were removed
    for node, device in dark:
        cut[node].add(device)
    for cable in lab.cables:
        if cable.name in written.was_down:
            cut[cable.upper.node].add(cable.upper.interface)
    for switch in lab.switches():
        for sid in _sids(lab, switch):
            if sid.prefix == UNKNOWN and sid.errors:
                sid.note = _origin(sorted(cut[switch]))
            yield sid


def _origin(cut: list[str]) -> str:
    """Describe the likely origin of packets that match no uSID of a switch."""
    if cut:
        return f"{', '.join(cut)} is or was without a cable, which removes the routes through it"
    return "no cable was pulled here: carriers contain a uSID that this switch does not have"


def _sids(lab: Lab, switch: str) -> list[SidStatus]:
    return [
        SidStatus(
            switch=switch,
            prefix=UNKNOWN if str(route["dst"]).endswith("/32") else str(route["dst"]),  # the whole block
            action=str(route.get("action", "")),
            packets=int(route.get("stats64", {}).get("packets", 0)),
            bytes=int(route.get("stats64", {}).get("bytes", 0)),
            errors=int(route.get("stats64", {}).get("errors", 0)),
        )
        for route in installed(lab, switch)
        if route.get("encap") == "seg6local"
    ]


def installed(lab: Lab, switch: str) -> list[dict[str, Any]]:
    """Return a switch's routes from iproute2."""
    command = ["ip", "-netns", namespace(lab.name, switch), "-6", "-stats", "-json", "route", "show"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    routes: list[dict[str, Any]] = json.loads(shown)
    return routes
