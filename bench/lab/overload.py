"""Does every packet of an overloaded port arrive, or have a named loss? `sudo python -m bench.lab.overload [SECONDS]`.

3, 8 and 15 NICs send to one as fast as their ports take packets, so its last hop is offered that many times its rate.
Afterwards every directed link must satisfy sent = arrived + losses by cause, every switch must have passed on what
arrived at it, and the NIC must hold what arrived on its port. The senders are sockets of this one process.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness import labs
from openmrc.fabric.addressing.paths import path
from openmrc.lab import record
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import inside, namespace
from openmrc.lab.status import LinkStatus, status

FABRIC = """
name: overload
hosts: {count: 16}
planes:
  - count: 1
    host_gbps: 0.05
    t0: {down: 8, up: 8, bundle: 4, buffer_kb: 64}
    t1: {buffer_kb: 64}
"""
NAME, PLANE, TARGET, PORT = "bench-overload", 0, 0, 4791
DSCP_TRIMMABLE, ECN_CAPABLE = 4, 2
PAYLOAD = bytes(4096)
QUIET_S = 0.5  # without an arrival: the queues are empty
_NO_CHECK6_TX, _NO_CHECK6_RX, _TCLASS, _RCVBUFFORCE = 101, 102, 67, 33


@dataclass(frozen=True)
class Flooded:
    """What the sockets at both ends counted."""

    sent: int
    whole: int
    trimmed: int


def flood(lab: Lab, senders: list[int], target: int, seconds: float, dscp: int = DSCP_TRIMMABLE) -> Flooded:
    """Send from these NICs to one, as fast as the ports take packets; return when nothing arrives any more."""
    with ExitStack() as opened:
        receiver = opened.enter_context(_socket(lab, target, PORT, dscp))
        paths = [(opened.enter_context(_socket(lab, nic, 5000, dscp)), _carriers(lab, nic, target)) for nic in senders]
        sent = turn = whole = trimmed = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            turn += 1
            for sender, carriers in paths:
                sent += _offer(sender, carriers[turn % len(carriers)])
            arrived = _arrivals(receiver, 0.0)
            whole, trimmed = whole + arrived[0], trimmed + arrived[1]
        arrived = _arrivals(receiver, QUIET_S)
        return Flooded(sent, whole + arrived[0], trimmed + arrived[1])


def _socket(lab: Lab, nic: int, port: int, dscp: int) -> socket.socket:
    with inside(namespace(lab.name, lab.topology.name(nic))):
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_UDP, _NO_CHECK6_TX, 1)
    made.setsockopt(socket.IPPROTO_UDP, _NO_CHECK6_RX, 1)
    made.setsockopt(socket.IPPROTO_IPV6, _TCLASS, dscp << 2 | ECN_CAPABLE)
    made.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 64 << 20)
    made.bind((lab.plan.nic_address(PLANE, nic), port))
    made.setblocking(False)
    return made


def _carriers(lab: Lab, nic: int, target: int) -> list[tuple[str, int]]:
    return [(path(lab.plan, nic, target, way).address, PORT) for way in lab.ways(PLANE, nic, target)]


def _offer(sender: socket.socket, to: tuple[str, int]) -> int:
    """Return 1 if the port took a packet; its queue full, the socket refuses it."""
    try:
        sender.sendto(PAYLOAD, to)
    except BlockingIOError:
        return 0
    return 1


def _arrivals(receiver: socket.socket, quiet: float) -> tuple[int, int]:
    """Return (whole, trimmed) packets that arrived, waiting until `quiet` seconds bring none."""
    found, last = [0, 0], time.monotonic()
    while True:
        try:
            found[receiver.recv_into(bytearray(9000)) < len(PAYLOAD)] += 1
            last = time.monotonic()
        except BlockingIOError:
            if time.monotonic() - last >= quiet:
                return found[0], found[1]
            time.sleep(min(quiet, 0.001))


@dataclass(frozen=True)
class Growth:
    """What one directed link, or several, counted during a flood."""

    sent: int
    arrived: int
    trimmed: int
    lost: int
    unaccounted: int


def growth(before: list[LinkStatus], after: list[LinkStatus]) -> dict[str, Growth]:
    """Return the packets of every directed link between two readings."""
    return {
        f"{new.name}:{new.interface}": Growth(
            sent=new.sent - old.sent,
            arrived=new.arrived - old.arrived,
            trimmed=new.trimmed - old.trimmed,
            lost=new.losses.total - old.losses.total,
            unaccounted=new.unaccounted + new.waiting,
        )
        for old, new in zip(before, after, strict=True)
    }


def unbalanced(links: dict[str, Growth]) -> list[str]:
    """Return the links and switches at which a packet is missing; NICs are the ends, and keep what arrives."""
    into: dict[str, int] = defaultdict(int)
    out_of: dict[str, int] = defaultdict(int)
    wrong = [name for name, link in links.items() if link.unaccounted or link.sent != link.arrived + link.lost]
    for name, link in links.items():
        source, destination = name.split(":")[0].split(">")
        out_of[source] += link.sent
        into[destination] += link.arrived
    return wrong + [node for node in into if "-t" in node and into[node] != out_of[node]]


def settled(name: str) -> list[LinkStatus]:
    """Return the links' counters once they stand still: ports that come up announce multicast groups for a while."""
    before = status(name, with_sids=False).links
    while True:
        time.sleep(1.2)
        links = status(name, with_sids=False).links
        if [link.sent for link in links] == [link.sent for link in before]:
            return links
        before = links


def measure(lab: Lab, senders: int, seconds: float) -> bool:
    before = settled(lab.name)
    flooded = flood(lab, list(range(1, senders + 1)), TARGET, seconds)
    after = settled(lab.name)
    links = growth(before, after)
    wrong = unbalanced(links)
    from_nics = sum(link.sent for name, link in links.items() if name.startswith("h"))
    to_target = sum(link.arrived for name, link in links.items() if f">h{TARGET}:" in name)
    trimmed = sum(link.trimmed for link in links.values())
    causes: dict[str, int] = defaultdict(int)
    for old, new in zip(before, after, strict=True):
        for cause, count in new.losses.named().items():
            if more := count - getattr(old.losses, cause):
                causes[cause] += more
    whole = (flooded.sent, flooded.whole + flooded.trimmed) == (from_nics, to_target) and not wrong
    print(
        f"{senders:2} to 1: sent {flooded.sent}, whole {flooded.whole}, trimmed {flooded.trimmed} of {trimmed}, "
        f"lost {dict(causes) or 0}; {'every packet accounted for' if whole else f'WRONG: {wrong}'}"
    )
    return whole


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    with tempfile.TemporaryDirectory() as folder:
        fabric = Path(folder, "overload.yaml")
        fabric.write_text(FABRIC)
        with labs.held(fabric, NAME) as written:
            lab = record.plan(NAME, written)
            balanced = [measure(lab, senders, seconds) for senders in (3, 8, 15)]
    sys.exit(not all(balanced))


if __name__ == "__main__":
    main()
