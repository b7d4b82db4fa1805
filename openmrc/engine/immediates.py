"""WriteIMMs at the responder: their data lands in any order, their completions come in order (MRC §6.1).

An immediate waits in a ring, by its RQMSN, until every earlier packet has arrived.
"""

from openmrc.core.jit import kernel
from openmrc.core.serial import MSN_BITS, extend
from openmrc.engine import completions
from openmrc.engine.tables import Engine


@kernel
def fits(engine: Engine, qp: int, packet: int) -> bool:
    """Whether this WriteIMM is within the number the peer may have in flight, and not seen before."""
    row = engine.qps[qp]
    rqmsn = extend(engine.packets[packet].rqmsn, row.expected_rqmsn, MSN_BITS)
    ahead = rqmsn - row.expected_rqmsn
    if ahead < 0 or ahead >= min(row.max_wimm_dest, row.pending_mask + 1):
        return False
    return engine.pending_immediates[row.pending_base + (rqmsn & row.pending_mask)].present == 0


@kernel
def hold(engine: Engine, qp: int, packet: int) -> None:
    """Put the immediate aside until its turn."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    rqmsn = extend(arrived.rqmsn, row.expected_rqmsn, MSN_BITS)
    waiting = engine.pending_immediates[row.pending_base + (rqmsn & row.pending_mask)]
    waiting.immediate = arrived.immediate
    waiting.length = arrived.dma_length
    waiting.solicited = arrived.solicited
    waiting.present = 1


@kernel
def is_next(engine: Engine, qp: int) -> bool:
    """Whether the immediate whose turn it is has arrived."""
    row = engine.qps[qp]
    return engine.pending_immediates[row.pending_base + (row.expected_rqmsn & row.pending_mask)].present == 1


@kernel
def deliver(engine: Engine, qp: int) -> bool:
    """Hand the next immediate to a posted receive; False: none is posted."""
    row = engine.qps[qp]
    waiting = engine.pending_immediates[row.pending_base + (row.expected_rqmsn & row.pending_mask)]
    if row.receive_head == row.receive_tail:
        return False
    wr_id = engine.receives[row.receive_base + (row.receive_head & row.receive_mask)].wr_id
    row.receive_head += 1
    row.expected_rqmsn += 1
    waiting.present = 0
    completions.push_receive(engine, qp, wr_id, waiting.length, waiting.immediate, waiting.solicited)
    return True
