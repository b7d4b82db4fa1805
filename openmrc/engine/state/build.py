"""Allocation of the tables and of the slices of endpoints and queue pairs. Nothing is allocated later.

A size is one number or an array with one entry per endpoint or queue pair, so that a simulation of unequal endpoints
allocates only what each needs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openmrc.core import host_memory, rng
from openmrc.core.rows import Table, column, sparse_table, table
from openmrc.engine.state import tables
from openmrc.engine.state.params import Settings, params_table
from openmrc.engine.state.tables import NONE, Engine
from openmrc.units import NEVER
from openmrc.wire.codes import FIRST_USER_QPN
from openmrc.wire.packet import Packet

MPR_UNIT = 128  # PSNs
TRACKER_WORD = 32  # PSNs a Tracker row holds
_SELDOM_WRITTEN = {"port_returns", "port_shares", "ev_failures", "events", "completions"}

Sizes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TableSizes:
    """Sizes of the tables. Per endpoint: `ports` to `events`; per queue pair, in endpoint order: the rest.

    Ring sizes are rounded up to powers of two. `sends` is the depth of the send queue, `window` the
    PSNs that may be outstanding to the peer (its MPR x 128), `tracked` our own MPR x 128.
    Queue pairs that only send or only receive can do without the rings of the other half: those of size 0
    are one row, which all of them share and none uses.
    """

    endpoints: int = 1
    ports: int = 4
    peers: ArrayLike = 1
    qps: ArrayLike = 1
    regions: ArrayLike = 4
    controls: ArrayLike = 256
    events: ArrayLike = 256
    sends: ArrayLike = 128
    receives: ArrayLike = 128
    window: ArrayLike = 8 * MPR_UNIT
    tracked: ArrayLike = 8 * MPR_UNIT
    wimms: ArrayLike = 32
    mark_rows: ArrayLike = 1  # EVs whose marks a responder counts at the same time, for ALWAYS_SKIP
    evs_per_rotation: ArrayLike = 8  # active and reserve
    tunings: int = 1  # rows of parameters: one, and those of congestion control profiles


def build(layout: TableSizes, settings: Settings, packets: int = 1, seed: int = 1, all_used: bool = False) -> Engine:
    """Allocate an engine with all ports up, queue pairs in RESET and `packets` packet rows for the caller.

    If all queue pairs will be used, raise MemoryError where their tables exceed the memory that is left: otherwise most
    pages are never written.
    """
    endpoint_count = layout.endpoints
    peers = _spread(layout.peers, endpoint_count)
    qps = _spread(layout.qps, endpoint_count)
    qp_count = int(qps.sum())
    rotations_per_qp = np.full(qp_count, layout.ports, dtype=np.int64)
    evs = rotations_per_qp * _spread(layout.evs_per_rotation, qp_count)
    completions = _completions(layout, qps)

    engine = Engine(
        params=params_table(settings, layout.tunings),
        endpoints=table(tables.Endpoint, endpoint_count),
        ports=table(tables.Port, endpoint_count * layout.ports),
        peers=table(tables.Peer, int(peers.sum())),
        qps=table(tables.QueuePairRow, qp_count),
        qp_blocks=table(tables.QpBlock, int(_blocks(qps).sum())),
        rotations=table(tables.PortRotation, int(rotations_per_qp.sum())),
        port_returns=sparse_table(tables.PortReturn, int(rotations_per_qp.sum())),
        port_shares=sparse_table(tables.PortShare, int(rotations_per_qp.sum())),
        slots=table(tables.RotationSlot, int(evs.sum())),
        evs=table(tables.Ev, int(evs.sum())),
        ev_failures=sparse_table(tables.EvFailure, int(evs.sum())),
        messages=table(tables.Message, _rows(_ring(layout.sends, qp_count))),
        sent=table(tables.Sent, _rows(_ring(layout.window, qp_count))),
        tracker=table(tables.Tracker, _rows(_words(layout.tracked, qp_count))),
        mark_stats=table(tables.EvMarkStats, _rows(_ring(layout.mark_rows, qp_count))),
        pending_immediates=table(tables.PendingImmediate, _rows(_ring(layout.wimms, qp_count))),
        receives=table(tables.PostedReceive, _rows(_ring(layout.receives, qp_count))),
        control=table(tables.Control, int(_ring(layout.controls, endpoint_count).sum())),
        regions=table(tables.Region, int(_spread(layout.regions, endpoint_count).sum())),
        completions=sparse_table(tables.Completion, int(completions.sum())),
        events=table(tables.Event, int(_ring(layout.events, endpoint_count).sum())),
        packets=table(Packet, packets),
    )
    if all_used:
        written = [rows for name, rows in engine._asdict().items() if name not in _SELDOM_WRITTEN]
        host_memory.require(written, f"{qp_count:,} queue pairs with {len(engine.evs):,} EVs")
    _init_endpoints(engine, layout, peers, qps, completions, seed)
    _init_peers(engine, peers)
    _init_qps(engine, layout, qps, evs)
    return engine


def _completions(layout: TableSizes, qps: Sizes) -> Sizes:
    """Return completion ring sizes that hold one completion of every request that can be posted."""
    qp_count = int(qps.sum())
    each = _ring(layout.sends, qp_count) + _ring(layout.receives, qp_count)
    ends = np.concatenate([[0], np.cumsum(each)])
    edges = np.concatenate([[0], np.cumsum(qps)])
    return _powers_of_two(ends[edges[1:]] - ends[edges[:-1]])


def _init_endpoints(
    engine: Engine, layout: TableSizes, peers: Sizes, qps: Sizes, completions: Sizes, seed: int
) -> None:
    rows = engine.endpoints
    count = layout.endpoints
    _put_slices(rows, "peer", peers)
    _put_slices(rows, "qp", qps)
    _put_slices(rows, "qp_block", _blocks(qps))
    _put_slices(rows, "region", _spread(layout.regions, count))
    _put_slices(rows, "port", np.full(count, layout.ports, dtype=np.int64))
    _put_rings(rows, "control", _ring(layout.controls, count))
    _put_rings(rows, "completion", completions)
    _put_rings(rows, "event", _ring(layout.events, count))
    column(rows, "address")[:] = np.arange(count)
    column(rows, "random")[:] = rng.seeded(seed, np.arange(count))
    column(rows, "ports_up")[:] = (1 << layout.ports) - 1
    column(rows, "ports_wanted")[:] = (1 << layout.ports) - 1
    # Never all ones, whatever stands above: QPN 0xFFFFFF means multicast.
    column(rows, "qpn_slot_mask")[:] = _powers_of_two(qps + FIRST_USER_QPN + 1) - 1
    column(rows, "ready_tail")[:] = NONE
    column(rows, "answered_qp")[:] = NONE
    for name in ("deadline", "peer_deadline", "remap_at"):
        column(rows, name)[:] = NEVER
    column(engine.qp_blocks, "deadline")[:] = NEVER


def _init_peers(engine: Engine, peers: Sizes) -> None:
    rows = engine.peers
    column(rows, "endpoint")[:] = np.repeat(np.arange(len(peers)), peers)
    column(rows, "address")[:] = NONE
    for name in ("ready_tail", "next_ready"):
        column(rows, name)[:] = NONE
    for name in ("status_deadline", "check_deadline"):
        column(rows, name)[:] = NEVER


def _init_qps(engine: Engine, layout: TableSizes, qps: Sizes, evs: Sizes) -> None:
    rows = engine.qps
    count = int(qps.sum())
    owner = np.repeat(np.arange(len(qps)), qps)
    slot = np.arange(count) - np.repeat(np.cumsum(qps) - qps, qps)
    column(rows, "endpoint")[:] = owner
    column(rows, "qpn")[:] = slot + FIRST_USER_QPN
    column(rows, "peer")[:] = NONE
    column(rows, "next_ready")[:] = NONE
    for name in ("deadline", "deadlines"):
        column(rows, name)[:] = NEVER
    _put_slices(rows, "rotation", np.full(count, layout.ports, dtype=np.int64))
    _put_slices(rows, "ev", evs)
    _put_rings(rows, "message", _ring(layout.sends, count))
    _put_rings(rows, "sent", _ring(layout.window, count))
    _put_rings(rows, "pending", _ring(layout.wimms, count))
    _put_rings(rows, "receive", _ring(layout.receives, count))
    _put_rings(rows, "mark_stats", _ring(layout.mark_rows, count))
    words = _words(layout.tracked, count)
    column(rows, "tracker_base")[:] = _ring_starts(words)
    column(rows, "tracker_mask")[:] = np.maximum(words, 1) * TRACKER_WORD - 1
    _init_rotations(engine, layout, evs)


def _init_rotations(engine: Engine, layout: TableSizes, evs: Sizes) -> None:
    rows = engine.rotations
    per_rotation = np.repeat(evs // layout.ports, layout.ports)
    column(rows, "qp")[:] = np.repeat(np.arange(len(evs)), layout.ports)
    column(rows, "port")[:] = np.tile(np.arange(layout.ports), len(evs))
    column(rows, "ev_base")[:] = _starts(per_rotation)
    column(rows, "total")[:] = per_rotation


def _put_slices(rows: Table[Any], name: str, sizes: Sizes) -> None:
    column(rows, f"{name}_base")[:] = _starts(sizes)
    column(rows, f"{name}_count")[:] = sizes


def _put_rings(rows: Table[Any], name: str, sizes: Sizes) -> None:
    column(rows, f"{name}_base")[:] = _ring_starts(sizes)
    column(rows, f"{name}_mask")[:] = np.maximum(sizes, 1) - 1


def _blocks(qps: Sizes) -> Sizes:
    return -(-qps // tables.QPS_PER_BLOCK)


def _starts(sizes: Sizes) -> Sizes:
    return np.cumsum(sizes) - sizes


def _ring(size: ArrayLike, count: int) -> Sizes:
    sizes = _spread(size, count)
    return np.where(sizes > 0, _powers_of_two(sizes), 0)


def _words(size: ArrayLike, count: int) -> Sizes:
    """Return the rows of a tracker of so many PSNs."""
    return -(-_ring(size, count) // TRACKER_WORD)


def _rows(sizes: Sizes) -> int:
    """Return the rows of a table of rings: behind all of them is the one that rings of size 0 share."""
    return int(sizes.sum()) + int((sizes == 0).any())


def _ring_starts(sizes: Sizes) -> Sizes:
    return np.where(sizes > 0, _starts(sizes), sizes.sum())


def _spread(size: ArrayLike, count: int) -> Sizes:
    return np.broadcast_to(np.asarray(size, dtype=np.int64), (count,)).copy()


def _powers_of_two(sizes: Sizes) -> Sizes:
    exponents = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return np.left_shift(np.int64(1), exponents)
