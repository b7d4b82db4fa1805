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
from openmrc.telemetry import snapshot_ops
from openmrc.telemetry.metric_table import check_identities
from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot
from openmrc.wire.codes import Opcode
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


def seen(path: Path) -> list[tuple[str, str, bytes]]:
    """Return source, destination and what UDP carries of each datagram."""
    fields = ["-T", "fields", "-e", "ip.src", "-e", "ip.dst", "-e", "udp.payload"]
    text = subprocess.run(["tshark", "-r", str(path), *fields], capture_output=True, text=True, check=True).stdout
    found = (line.split("\t") for line in text.splitlines())
    return [(source, to, bytes.fromhex(payload)) for source, to, payload in found]


def data_psns(wire: list[tuple[str, str, bytes]], sources: list[str]) -> Counter[int]:
    """Return how often each data packet of these addresses is on the wire, by its number: docs/wire.md."""
    of_data = (sent for source, _, sent in wire if source in sources and sent[0] <= Opcode.WRITE_ONLY_IMM)
    return Counter(int.from_bytes(sent[9:12], "big") for sent in of_data)


def ports_of(folder: Path) -> dict[str, list[PortSnapshot]]:
    """Return the ports of both endpoints."""
    return {device: each.ports for device, each in snapshots(folder).items()}


def snapshots(folder: Path) -> dict[str, EndpointSnapshot]:
    """Return snapshots of both endpoints."""
    found = {}
    for path in local_endpoints(str(folder)):
        with CtlClient(path) as client:
            snapshot = client.call(snapshot_ops.snapshot)
        found[snapshot.device] = snapshot
    return found


def test_every_datagram_on_the_wire_is_counted_once_at_both_ends(tmp_path: Path) -> None:
    """With 5 % of what arrives at one end dropped there: those are counted as impaired."""
    folder, file = tmp_path / "ctl", tmp_path / "wire.pcapng"
    attr = replace(SMALL, ctl=str(folder), evs_per_plane=3, segmentation=False)
    with joined(planes=PLANES, attr=attr, faults="loss: 5%") as pair:
        here, there = ([host_of(plane) for plane in context.address.planes] for context in pair.contexts)
        before = snapshots(folder)
        with captured(file, here[0].rpartition(".")[0] + ".0/24"):
            send(pair, WRITES)
            after = [(ports_of(folder), 0)]

            def is_quiet() -> bool:
                after.append((ports_of(folder), file.stat().st_size))
                return after[-1] == after[max(0, len(after) - 8)]

            await_true(is_quiet)
        now = snapshots(folder)
    found = seen(file)
    wire = Counter((source, to) for source, to, _ in found)
    sends, receives = (f"mrc_{planes[0]}" for planes in (here, there))
    impaired = 0
    for plane in range(PLANES):
        out, back = wire[here[plane], there[plane]], wire[there[plane], here[plane]]
        first, second = (difference(before[name].ports[plane], now[name].ports[plane]) for name in (sends, receives))
        assert first["transmitted_packets"] + first["control_transmitted"] == out
        assert second["transmitted_packets"] + second["control_transmitted"] == back
        assert first["received_packets"] + first["control_received"] == back
        assert second["received_packets"] + second["control_received"] + second["impaired"] == out
        impaired += second["impaired"]
    assert impaired > 0
    assert sum(wire.values()) > WRITES
    psns, (then, pair_now) = data_psns(found, here), (each[sends].queue_pairs[0] for each in (before, now))
    assert len(psns) == pair_now.sent_packets - then.sent_packets == pair_now.acknowledged - then.acknowledged
    assert psns.total() - len(psns) == pair_now.retransmitted - then.retransmitted > 0
    assert pair_now.inflight == pair_now.waiting == 0
    check_identities(list(now.values()))


def difference(before: PortSnapshot, now: PortSnapshot) -> dict[str, int]:
    """Return how much each counter has grown."""
    names = ("transmitted_packets", "control_transmitted", "received_packets", "control_received", "impaired")
    return {name: getattr(now, name) - getattr(before, name) for name in names}
