"""First contents of an engine with one endpoint, by kernels: for a process without an interpreter.

`build` lays out any number of endpoints with NumPy. A native library has neither NumPy nor Python: it allocates tables
of zeros, of lengths that `build` gave when the library was made, and calls `set_up`. A test compares both, bit for bit.
"""

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.state.build import TRACKER_WORD
from openmrc.engine.state.tables import NONE, Engine
from openmrc.units import NEVER
from openmrc.wire.codes import FIRST_USER_QPN


@rare_kernel
def set_up(engine: Engine, seed: int) -> None:
    """Write the first contents of all tables but `params`; they are zero before."""
    _set_up_endpoint(engine, seed)
    for peer in range(len(engine.peers)):
        _set_up_peer(engine, peer)
    for block in range(len(engine.qp_blocks)):
        engine.qp_blocks[block].deadline = NEVER
    for qp in range(len(engine.qps)):
        _set_up_queue_pair(engine, qp)
    for rotation in range(len(engine.rotations)):
        _set_up_rotation(engine, rotation)


@kernel
def _set_up_endpoint(engine: Engine, seed: int) -> None:
    row = engine.endpoints[0]
    ports = len(engine.ports)
    row.peer_count = len(engine.peers)
    row.qp_count = len(engine.qps)
    row.qp_block_count = len(engine.qp_blocks)
    row.region_count = len(engine.regions)
    row.port_count = ports
    row.control_mask = len(engine.control) - 1
    row.completion_mask = len(engine.completions) - 1
    row.event_mask = len(engine.events) - 1
    row.random = rng.seeded(seed, 0)
    row.ports_up = (1 << ports) - 1
    row.ports_wanted = (1 << ports) - 1
    # Never all ones, whatever stands above: QPN 0xFFFFFF means multicast.
    row.qpn_slot_mask = _power_of_two(len(engine.qps) + FIRST_USER_QPN + 1) - 1
    row.ready_tail = NONE
    row.answered_qp = NONE
    row.deadline = NEVER
    row.peer_deadline = NEVER
    row.remap_at = NEVER


@kernel
def _power_of_two(least: int) -> int:
    power = 1
    while power < least:
        power *= 2
    return power


@kernel
def _set_up_peer(engine: Engine, peer: int) -> None:
    row = engine.peers[peer]
    row.address = NONE
    row.ready_tail = NONE
    row.next_ready = NONE
    row.status_deadline = NEVER
    row.check_deadline = NEVER


@kernel
def _set_up_queue_pair(engine: Engine, qp: int) -> None:
    row = engine.qps[qp]
    count, ports = len(engine.qps), len(engine.ports)
    row.qpn = qp + FIRST_USER_QPN
    row.peer = NONE
    row.next_ready = NONE
    row.deadline = NEVER
    for timer in range(len(row.deadlines)):
        row.deadlines[timer] = NEVER
    row.rotation_base = qp * ports
    row.rotation_count = ports
    row.ev_count = len(engine.evs) // count
    row.ev_base = qp * row.ev_count
    row.message_mask = len(engine.messages) // count - 1
    row.message_base = qp * (row.message_mask + 1)
    row.sent_mask = len(engine.sent) // count - 1
    row.sent_base = qp * (row.sent_mask + 1)
    row.pending_mask = len(engine.pending_immediates) // count - 1
    row.pending_base = qp * (row.pending_mask + 1)
    row.receive_mask = len(engine.receives) // count - 1
    row.receive_base = qp * (row.receive_mask + 1)
    row.mark_stats_mask = len(engine.mark_stats) // count - 1
    row.mark_stats_base = qp * (row.mark_stats_mask + 1)
    row.tracker_base = qp * (len(engine.tracker) // count)
    row.tracker_mask = len(engine.tracker) // count * TRACKER_WORD - 1


@kernel
def _set_up_rotation(engine: Engine, number: int) -> None:
    ports = len(engine.ports)
    row = engine.rotations[number]
    row.qp = number // ports
    row.port = number % ports
    row.total = len(engine.evs) // len(engine.rotations)
    row.ev_base = number * row.total
