"""The sockets of a context, as the kernel lists them: while it is open, beside a second one, and after its end."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.live_pair import addresses
from openmrc.errors import ConfigError
from openmrc.verbs import Context, ContextAttr

from .drawing import drawn

pytestmark = pytest.mark.needs("jit")
_NUMBERS = itertools.count(500)
JUNK = 20  # datagrams to each plane
SECONDS = 60.0
CHILD = """
import sys, time
from openmrc.verbs import Context
Context(sys.argv[1:])
print("open", flush=True)
time.sleep(600)
"""


@dataclass(frozen=True)
class Bound:
    """A UDP socket of the kernel's table."""

    ip: str
    port: int
    inode: int
    drops: int


def table() -> list[Bound]:
    """Return every UDP socket of this network namespace."""
    found = []
    for name in ("udp", "udp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            words = line.split()
            address, _, port = words[1].partition(":")
            parts = [int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8)]
            found.append(Bound(str(ip_address(b"".join(parts))), int(port, 16), int(words[9]), int(words[12])))
    return found


def ours(known: set[int]) -> set[tuple[str, int]]:
    """Return the names of the UDP sockets that this process has and did not have before."""
    mine = inodes() - known
    return {(each.ip, each.port) for each in table() if each.inode in mine}


def inodes() -> set[int]:
    """Return the numbers of all sockets of this process."""
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            kind, _, number = os.readlink(f"/proc/self/fd/{entry}").partition(":")
            if kind == "socket":
                found.add(int(number.strip("[]")))
    return found


def named(context: Context) -> set[tuple[str, int]]:
    """Return the names of the sockets that a context says it has."""
    names = set()
    for plane, ports in zip(context.address.planes, context.address.source_ports, strict=True):
        ip, port = where(plane)
        names |= {(ip, port), *((ip, each) for each in ports)}
    return names


def where(plane: str) -> tuple[str, int]:
    """Return address and port of a plane in text."""
    ip, colon, port = plane.rpartition(":") if plane.startswith("[") or plane.count(":") == 1 else (plane, "", "")
    return (ip.strip("[]"), int(port)) if colon else (plane, 4791)


def planes_of(row: SimpleNamespace, side: int, number: int) -> list[str]:
    """Return the planes of one of two contexts, as their user names them."""
    found = addresses(side, number, row.planes, row.family)
    if row.family == 6:
        return ["::1"] if row.port == "default" else found
    return [f"{each}:{9000 + plane}" for plane, each in enumerate(found)] if row.port == "given" else found


def check_junk(context: Context) -> None:
    """What strangers send is refused, or the kernel has dropped it: nothing is missing, and nothing counted twice."""
    planes = [where(plane) for plane in context.address.planes]
    for ip, port in planes:
        with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for _ in range(JUNK):
                stranger.sendto(b"junk", (ip, port))
    until = time.monotonic() + SECONDS
    while True:
        drops = {(each.ip, each.port): each.drops for each in table()}
        counted = [
            counters.refused + drops[plane] for counters, plane in zip(context.plane_counters(), planes, strict=True)
        ]
        if counted == len(planes) * [JUNK] or time.monotonic() > until:
            break
        time.sleep(0.01)
    assert counted == len(planes) * [JUNK]


def check_killed(planes: list[str]) -> None:
    """A process that is killed leaves no socket, and the addresses to the next."""
    with subprocess.Popen([sys.executable, "-c", CHILD, *planes], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        child.send_signal(signal.SIGKILL)
    Context(planes).close()


def end(context: Context, how: str) -> None:
    """Close a context in the way of the row."""
    if how == "in another thread":
        thread = threading.Thread(target=context.close)
        thread.start()
        thread.join(SECONDS)
    elif how == "with":
        with context:
            pass
    else:
        for _ in range(2 if how == "twice" else 1):
            context.close()


@drawn("ports", few=6, quick=lambda row: row.end != "killed")
def test_the_kernel_has_the_sockets_that_a_context_names(row: SimpleNamespace) -> None:
    number, known = next(_NUMBERS), inodes()
    planes = planes_of(row, 0, number)
    attr = ContextAttr(
        max_qp=1, max_peers=1, max_mr=1, max_mpr=1, evs_per_plane=row.evs_per_plane, receive_buffer=row.receive_buffer
    )
    if row.end == "killed":
        check_killed(planes)
    context = Context(planes, attr)
    try:
        assert ours(known) == named(context)
        assert [len(ports) for ports in context.address.source_ports] == row.planes * [row.evs_per_plane]
        check_junk(context)
        if row.second == "the same address" and row.port == "given":
            with pytest.raises(ConfigError, match="in use"):
                Context(planes, attr)
            assert ours(known) == named(context)
        elif row.second in {"another address", "the same address"}:
            others = planes if row.second == "the same address" else planes_of(row, 1, number)
            with Context(others, attr) as second:
                assert ours(known) == named(context) | named(second)
                assert not named(context) & named(second)
    finally:
        end(context, row.end)
    assert ours(known) == set()
    if row.second == "the same after the first is closed":
        with Context(planes, attr) as again:
            assert named(again) >= {where(plane) for plane in planes}
