"""The description file of each NIC of a lab, read by endpoints inside its namespace."""

from __future__ import annotations

from pathlib import Path

import msgspec

from openmrc.fabric.model.port_settings import queue_bytes
from openmrc.lab import record
from openmrc.lab.layout import Lab
from openmrc.live.host.nic_file import NicFile

_PACKET = 4096 + 150  # bytes of the longest packet, headers included
SOFTWARE_US = 300.0  # of a round trip: two wake-ups, eight forwarding steps; measured in an idle lab
_TARGET_SHARE = 0.5  # share of the fabric's queues, so that congestion control stays below their ECN thresholds


def path_of(lab: str, nic: str) -> Path:
    """Return the path of a NIC's file."""
    return record.folder(lab) / "nics" / f"{nic}.json"


def write_all(lab: Lab, trimming: bool) -> None:
    """Write the files of all NICs."""
    path_of(lab.name, "").parent.mkdir(parents=True, exist_ok=True)
    for nic in range(lab.topology.nics):
        described = describe(lab, nic, trimming)
        path_of(lab.name, described.name).write_bytes(msgspec.json.encode(described))


def describe(lab: Lab, nic: int, trimming: bool) -> NicFile:
    """Describe one NIC."""
    name, planes = lab.topology.name(nic), range(len(lab.plan.planes))
    own = [cable.lower for cable in lab.cables if cable.lower.node == name]
    others = [other for other in range(lab.topology.nics) if other != nic]
    slowest = min(port.rate for port in lab.ports())
    queue = min(queue_bytes(port.buffer) for port in lab.ports() if not port.is_nic)
    return NicFile(
        name=name,
        planes=[lab.address(plane, nic) for plane in planes],
        carriers=[{lab.address(plane, other): _ways(lab, plane, nic, other) for other in others} for plane in planes],
        link_gbps=sum(port.rate for port in own) / 1e9,
        base_rtt_us=_PACKET * 8e6 / slowest + SOFTWARE_US,  # idle ports forward a burst at once
        target_delay_us=_TARGET_SHARE * queue * 8e6 / slowest,
        trimming=trimming,
    )


def _ways(lab: Lab, plane: int, nic: int, other: int) -> list[str]:
    return [lab.carrier(nic, other, way) for way in lab.ways(plane, nic, other)]
