"""Copy the packets of chosen NICs, as the engine wrote or received them; `captures` converts them to frames.

Each tapped NIC has its own rows, so threads never share one and the copies do not depend on the number of threads.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.rows import Int, Int8, Table, table
from openmrc.engine.control_tx import CONTEXT_MASK
from openmrc.engine.state.queue_pairs import by_qpn
from openmrc.engine.state.tables import NONE, Engine
from openmrc.sim.network.network_tables import Network, Service
from openmrc.wire.codec import as_matrix
from openmrc.wire.codes import Opcode, TrafficClass
from openmrc.wire.layout import COLUMN, Matrix

_COLUMNS = len(COLUMN)


class Tap:
    """Copied packets of one NIC."""

    first: Int  # row of `Taps.seen`
    limit: Int  # rows; 0: this NIC is not captured
    start: Int  # ps, begin of the capture
    count: Int  # rows filled
    passed: Int  # packets after all rows were filled


class Seen:
    """Time and circumstances of a copied packet; its content is in the same row of `Taps.kept`."""

    at: Int  # ps: passed to the port, or last bit received
    outgoing: Int8


class Taps(NamedTuple):
    """All copied packets; without taps the loop only checks their number."""

    taps: Table[Tap]  # a row per NIC, or empty
    seen: Table[Seen]
    packets: Matrix  # the engine's, by shard
    kept: Matrix


@dataclass(frozen=True)
class CaptureTap:
    """NICs to capture, and limits."""

    nics: tuple[int, ...] = ()
    limit: int = 0  # packets per NIC
    start: int = 0  # ps, begin of the capture


def taps(engine: Engine, nics: int, capture: CaptureTap) -> Taps:
    """Allocate the tables of a capture, in a network of `nics` NICs."""
    limit = capture.limit
    rows = len(capture.nics) * limit
    made = Taps(
        taps=table(Tap, nics if rows else 0),
        seen=table(Seen, rows),
        packets=as_matrix(engine.packets),
        kept=np.zeros((rows, _COLUMNS), np.int64),
    )
    for at, nic in enumerate(capture.nics if rows else ()):
        tap = made.taps[nic]
        tap.first, tap.limit, tap.start = at * limit, limit, capture.start
    return made


@rare_kernel
def sent(tapped: Taps, shard: int, now: int, nic: int) -> None:
    """Copy the shard's packet before it leaves."""
    row = _claim(tapped, now, nic)
    if row != NONE:
        tapped.seen[row].at = now
        tapped.seen[row].outgoing = 1
        _copy(tapped, shard, row)


@rare_kernel
def arrived(tapped: Taps, engine: Engine, network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    """Copy the shard's packet after it arrives, before the engine processes it."""
    row = _claim(tapped, now, nic)
    if row != NONE:
        tapped.seen[row].at = now
        tapped.seen[row].outgoing = 0
        _complete(engine, network, shard, nic, hop)
        _copy(tapped, shard, row)


@kernel
def _claim(tapped: Taps, now: int, nic: int) -> int:
    """Return the row for the NIC's next packet, or NONE."""
    tap = tapped.taps[nic]
    if tap.limit == 0 or now < tap.start:
        return NONE
    if tap.count == tap.limit:
        tap.passed += 1
        return NONE
    tap.count += 1
    return tap.first + tap.count - 1


@kernel
def _complete(engine: Engine, network: Network, shard: int, nic: int, hop: int) -> None:
    """Restore the fields that a frame omits because no decision needs them."""
    packet = engine.packets[shard]
    packet.destination = nic
    packet.vendor_info = 0
    packet.spdcid = 0
    packet.dpdcid = 0
    qp = by_qpn(engine, nic, packet.dest_qpn)
    if qp != NONE:
        packet.spdcid = engine.qps[qp].dest_qpn & CONTEXT_MASK
        packet.dpdcid = packet.dest_qpn & CONTEXT_MASK
    packet.traffic_class = _traffic_class(network, packet.opcode, packet.retransmitted, hop)


@kernel
def _traffic_class(network: Network, opcode: int, retransmitted: int, hop: int) -> int:
    row = network.hops[hop]
    if row.trimmable:
        return TrafficClass.TRIMMABLE_RETX.value if retransmitted == 1 else TrafficClass.TRIMMABLE.value
    if opcode <= Opcode.WRITE_ONLY_IMM or row.service != Service.CONTROL:
        return TrafficClass.NO_TRIM.value
    return TrafficClass.CONTROL.value


@kernel
def _copy(tapped: Taps, shard: int, row: int) -> None:
    for column in range(_COLUMNS):
        tapped.kept[row, column] = tapped.packets[shard, column]
