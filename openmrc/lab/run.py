"""Run a command as one of a lab's NICs; write the files that describe the NICs to endpoints."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from openmrc.ctl.folder import VARIABLE as CTL_VARIABLE
from openmrc.errors import MrcError
from openmrc.fabric.export.hosts import PACKET, TARGET_SHARE, Carriers, endpoint
from openmrc.fabric.model.port_settings import queue_bytes
from openmrc.lab import namespaces, record
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import namespace
from openmrc.live.host.nic_file import BIND_VARIABLE, EVERYWHERE, TOKEN_VARIABLE, VARIABLE, NicFile


def command_line(lab: str, node: str, command: Sequence[str]) -> list[str]:
    """Return the command line for `ip netns exec`; MrcError if the lab has no such node."""
    record.read(lab)
    where = namespace(lab, node)
    if where not in namespaces.of_lab(lab):
        first = ", ".join(name.split(".", 2)[2] for name in namespaces.of_lab(lab)[:3])
        raise MrcError(f"lab {lab!r} has no node {node!r}, only {first} and others; `mrc lab status` lists all nodes")
    return ["ip", "netns", "exec", where, *command]


def environment(lab: str, node: str) -> dict[str, str]:
    """Return the environment of a command: the NIC file, listening addresses, and the shared token."""
    path = path_of(lab, node)
    described = {VARIABLE: str(path)} if path.exists() else {}
    shared = {TOKEN_VARIABLE: record.token(lab), BIND_VARIABLE: EVERYWHERE}
    return {**shared, **os.environ, **described}


def become(lab: str, node: str, command: Sequence[str]) -> Any:
    """Replace this process by a command on a node, with its signals, terminal and exit code.

    Its endpoints have controller sockets in the lab's folder, unless the environment names another one or none.
    """
    line = command_line(lab, node, command)
    os.execvpe(line[0], line, {CTL_VARIABLE: str(sockets_of(lab)), **environment(lab, node)})


def sockets_of(lab: str) -> Path:
    """Return the folder of the controller sockets of a lab's endpoints."""
    return record.folder(lab) / "ctl"


SOFTWARE_US = 300.0  # of a round trip: two wake-ups, eight forwarding steps; measured in an idle lab


def path_of(lab: str, nic: str) -> Path:
    return record.folder(lab) / "nics" / f"{nic}.json"


def write_nic_files(lab: Lab, trimming: bool) -> None:
    path_of(lab.name, "").parent.mkdir(parents=True, exist_ok=True)
    for nic in range(lab.topology.nics):
        described = describe(lab, nic, trimming)
        path_of(lab.name, described.name).write_bytes(msgspec.json.encode(described))


def describe(lab: Lab, nic: int, trimming: bool) -> NicFile:
    """Return what the export of hosts says of a NIC, with the times of a lab."""
    slowest = min(port.rate for port in lab.ports())
    queue = min(queue_bytes(port.buffer) for port in lab.ports() if not port.is_nic)
    times = {
        "base_rtt_us": PACKET * 8e6 / slowest + SOFTWARE_US,  # idle ports forward a burst at once
        "target_delay_us": TARGET_SHARE * queue * 8e6 / slowest,
    }
    return NicFile(**endpoint(lab.plan, Carriers(lab.plan), nic, trimming) | times)
