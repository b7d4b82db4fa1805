"""WriteIMMs at the responder: data is placed in any order, completions are delivered in order (MRC §6.1).

An immediate is kept in a ring, indexed by its RQMSN, until all earlier packets have arrived.
"""

from openmrc.core.jit import kernel
from openmrc.core.serial import MSN_BITS, extend
from openmrc.engine.state import completions
from openmrc.engine.state.tables import Engine


@kernel
def fits(engine: Engine, qp: int, packet: int) -> bool:
    """Return whether a WriteIMM is new and within the number that the peer may have in flight."""
    row = engine.qps[qp]
    rqmsn = extend(engine.packets[packet].rqmsn, row.expected_rqmsn, MSN_BITS)
    ahead = rqmsn - row.expected_rqmsn
    if ahead < 0 or ahead >= min(row.max_wimm_dest, row.pending_mask + 1):
        return False
    return not engine.pending_immediates[row.pending_base + (rqmsn & row.pending_mask)].present


@kernel
def hold(engine: Engine, qp: int, packet: int) -> None:
    """Store the immediate until all earlier packets have arrived."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    rqmsn = extend(arrived.rqmsn, row.expected_rqmsn, MSN_BITS)
    waiting = engine.pending_immediates[row.pending_base + (rqmsn & row.pending_mask)]
    waiting.immediate = arrived.immediate
    waiting.length = arrived.dma_length
    waiting.solicited = arrived.solicited
    waiting.present = True


@kernel
def is_next(engine: Engine, qp: int) -> bool:
    """Return whether the next immediate in order has arrived."""
    row = engine.qps[qp]
    return engine.pending_immediates[row.pending_base + (row.expected_rqmsn & row.pending_mask)].present


@kernel
def is_whole(engine: Engine, qp: int) -> bool:
    """Return whether as many packets of the next immediate's message have arrived as its length says."""
    row = engine.qps[qp]
    waiting = engine.pending_immediates[row.pending_base + (row.expected_rqmsn & row.pending_mask)]
    return row.message_packets == max(1, (waiting.length + row.path_mtu - 1) // row.path_mtu)


@kernel
def deliver(engine: Engine, qp: int) -> bool:
    """Complete a posted receive with the next immediate; False if no receive is posted."""
    row = engine.qps[qp]
    waiting = engine.pending_immediates[row.pending_base + (row.expected_rqmsn & row.pending_mask)]
    if row.receive_head == row.receive_tail:
        return False
    wr_id = engine.receives[row.receive_base + (row.receive_head & row.receive_mask)].wr_id
    row.receive_head += 1
    row.expected_rqmsn += 1
    waiting.present = False
    completions.push_receive(engine, qp, wr_id, waiting.length, waiting.immediate, waiting.solicited)
    return True
