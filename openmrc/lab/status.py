"""What a lab's links and uSIDs have carried, marked, trimmed and dropped: read from the kernel, nothing sampled."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import msgspec

from openmrc.lab import kernel_maps, namespaces, record
from openmrc.lab.layout import Lab, Port
from openmrc.lab.namespaces import namespace
from openmrc.lab.port import PortCounters


class LinkStatus(msgspec.Struct, kw_only=True):
    """One direction of a cable."""

    name: str  # SOURCE>DESTINATION
    plane: int
    tier: str
    interface: str  # at the source
    up: bool
    gbps: float
    packets: int
    bytes: int  # on the wire
    control: int
    marked: int
    trimmed: int
    dropped: int  # the queue was full
    lost: int  # faults
    corrupted: int
    longest_queue_us: float


class SidStatus(msgspec.Struct, kw_only=True):
    """One uSID of a switch; `unknown` stands for every destination that the switch knows no uSID for."""

    switch: str
    prefix: str
    action: str
    packets: int
    bytes: int
    errors: int  # of `unknown`: packets dropped for want of a uSID


class LabStatus(msgspec.Struct, kw_only=True):
    """All of it."""

    name: str
    trimming: bool
    nics: int
    switches: int
    down: list[str]
    links: list[LinkStatus]
    sids: list[SidStatus]


def status(name: str, with_sids: bool = True) -> LabStatus:
    """Return a lab's counters."""
    namespaces.require_root()
    written = record.read(name)
    lab = record.plan(name, written)
    links = [
        _link(lab, written, here, there, cable.plane, cable.tier.name.lower(), cable.name in written.down)
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
        sids=[sid for switch in lab.switches() for sid in _sids(lab, switch)] if with_sids else [],
    )


def counters(written: record.Record, port: Port) -> PortCounters:
    """Return what a port has counted."""
    return PortCounters.unpack(kernel_maps.read(written.maps[f"{port.node}/{port.interface}"].queue, PortCounters.SIZE))


def _link(
    lab: Lab, written: record.Record, here: Port, there: Port, plane: int, tier: str, is_down: bool
) -> LinkStatus:
    counted = counters(written, here)
    return LinkStatus(
        name=f"{here.node}>{there.node}",
        plane=plane,
        tier=tier,
        interface=here.interface,
        up=not is_down,
        gbps=here.rate / 1e9,
        packets=counted.packets,
        bytes=counted.wire_bytes,
        control=counted.control,
        marked=counted.marked,
        trimmed=counted.trimmed,
        dropped=counted.dropped,
        lost=counted.lost,
        corrupted=counted.corrupted,
        longest_queue_us=round(counted.longest_ns / 1000, 1),
    )


def _sids(lab: Lab, switch: str) -> list[SidStatus]:
    return [
        SidStatus(
            switch=switch,
            prefix="unknown" if route["dst"] == "default" else str(route["dst"]),
            action=str(route.get("action", "")),
            packets=int(route.get("stats64", {}).get("packets", 0)),
            bytes=int(route.get("stats64", {}).get("bytes", 0)),
            errors=int(route.get("stats64", {}).get("errors", 0)),
        )
        for route in installed(lab, switch)
        if route.get("encap") == "seg6local"
    ]


def installed(lab: Lab, switch: str) -> list[dict[str, Any]]:
    """Return a switch's routes as iproute2 tells them."""
    command = ["ip", "-netns", namespace(lab.name, switch), "-6", "-stats", "-json", "route", "show"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    routes: list[dict[str, Any]] = json.loads(shown)
    return routes
