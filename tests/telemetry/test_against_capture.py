"""Counters of ports against what dumpcap has seen on the wire, and against the losses that were injected."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness.live_pair import SMALL, joined
from openmrc.ctl.client import CtlClient, local_endpoints
from openmrc.live.host.addresses import host_of
from openmrc.telemetry.snapshot_ops import SnapshotQuery
from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot
from tests.ctl.test_endpoint_control import send
from tests.waiting import await_true

pytestmark = pytest.mark.needs("tshark", "root")
PLANES, WRITES = 2, 200


@contextmanager
def captured(path: Path, network: str) -> Iterator[None]:
    """Have dumpcap write what is sent on loopback inside this network."""
    line = ["dumpcap", "-q", "-i", "lo", "-B", "64", "-f", f"udp and net {network}", "-w", str(path)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            await_true(lambda: path.exists() and path.stat().st_size > 0)
            yield
        finally:
            process.terminate()
            said = process.communicate(timeout=60)[1]
    dropped = re.search(r"received/dropped on interface .*: \d+/(\d+)", said)
    assert dropped is not None
    assert dropped[1] == "0", "dumpcap has not seen everything"


def seen(path: Path) -> Counter[tuple[str, str]]:
    """Return the datagrams by source and destination."""
    fields = ["-T", "fields", "-e", "ip.src", "-e", "ip.dst"]
    text = subprocess.run(["tshark", "-r", str(path), *fields], capture_output=True, text=True, check=True).stdout
    return Counter((source, to) for source, _, to in (line.partition("\t") for line in text.splitlines()))


def ports(folder: Path) -> dict[str, list[PortSnapshot]]:
    """Return the ports of both endpoints."""
    found = {}
    for path in local_endpoints(str(folder)):
        with CtlClient(path) as client:
            snapshot = client.call("snapshot", SnapshotQuery(), EndpointSnapshot)
        found[snapshot.device] = snapshot.ports
    return found


def test_every_datagram_on_the_wire_is_counted_once_at_both_ends(tmp_path: Path) -> None:
    """With 5 % of what arrives at one end dropped there: those are counted as impaired."""
    folder, file = tmp_path / "ctl", tmp_path / "wire.pcapng"
    attr = replace(SMALL, ctl=str(folder), evs_per_plane=3, segmentation=False)
    with joined(planes=PLANES, attr=attr, faults="loss: 5%") as pair:
        here, there = ([host_of(plane) for plane in context.address.planes] for context in pair.contexts)
        before = ports(folder)
        with captured(file, here[0].rpartition(".")[0] + ".0/24"):
            send(pair, WRITES)
            after = [(ports(folder), 0)]

            def is_quiet() -> bool:
                after.append((ports(folder), file.stat().st_size))
                return after[-1] == after[max(0, len(after) - 8)]

            await_true(is_quiet)
        now = after[-1][0]
    wire = seen(file)
    sends, receives = (f"mrc_{planes[0]}" for planes in (here, there))
    impaired = 0
    for plane in range(PLANES):
        out, back = wire[here[plane], there[plane]], wire[there[plane], here[plane]]
        first, second = (difference(before[name][plane], now[name][plane]) for name in (sends, receives))
        assert first["transmitted_packets"] + first["control_transmitted"] == out
        assert second["transmitted_packets"] + second["control_transmitted"] == back
        assert first["received_packets"] + first["control_received"] == back
        assert second["received_packets"] + second["control_received"] + second["impaired"] == out
        impaired += second["impaired"]
    assert impaired > 0
    assert sum(wire.values()) > WRITES


def difference(before: PortSnapshot, now: PortSnapshot) -> dict[str, int]:
    """Return how much each counter has grown."""
    names = ("transmitted_packets", "control_transmitted", "received_packets", "control_received", "impaired")
    return {name: getattr(now, name) - getattr(before, name) for name in names}
