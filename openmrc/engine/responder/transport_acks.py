"""Transport acknowledgements (AETH), separate from reliability SACKs (MRC §7.5; IBTA volume 1, 9.7.5).

An ACK counts completed messages; a NAK ends the connection on both sides.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.serial import PSN_BITS
from openmrc.engine import lifecycle
from openmrc.engine.state import control_queue
from openmrc.engine.state.queue_pairs import params_of
from openmrc.engine.state.tables import NONE, Engine
from openmrc.wire.codes import Opcode, Syndrome

_PSN_MASK = (1 << PSN_BITS) - 1
_COUNT_MASK = (1 << 24) - 1


@kernel
def on_arrival(engine: Engine, qp: int, packet: int, completed: int) -> None:
    """Queue an ACK if a message completed, on request without holes, and at least every `ack_every` packets."""
    row = engine.qps[qp]
    row.since_ack += 1
    asked = engine.packets[packet].ack_request == 1 and row.ooo_count == 0
    every = params_of(engine, qp).ack_every
    if completed > 0 or asked or row.since_ack >= every:
        queue(engine, qp)


@kernel
def queue(engine: Engine, qp: int) -> None:
    """Queue an ACK, unless one is queued already: its count is read when it is sent."""
    row = engine.qps[qp]
    if row.ack_queued:
        return
    if control_queue.claim(engine, row.endpoint, Opcode.ACKNOWLEDGE, qp, row.peer) != NONE:
        row.ack_queued = True
        row.since_ack = 0


@rare_kernel
def refuse(engine: Engine, now: int, qp: int, psn: int, syndrome: int, cause: int) -> None:
    """Answer a packet with a NAK and go to ERROR."""
    engine.qps[qp].nak_syndrome = syndrome
    engine.qps[qp].nak_psn = psn
    queue(engine, qp)
    lifecycle.fail(engine, now, qp, cause)


@kernel
def fill(engine: Engine, index: int, packet: int) -> None:
    """Write the AETH, and the PSN as InfiniBand does: the refused packet, or the last one behind the left edge."""
    row = engine.qps[engine.control[index].qp]
    out = engine.packets[packet]
    is_refusal = row.nak_syndrome != 0
    out.psn = (row.nak_psn if is_refusal else row.expected_psn - 1) & _PSN_MASK
    out.syndrome = row.nak_syndrome if is_refusal else Syndrome.ACK.value
    row.acked_messages = row.completed_messages
    out.acked_messages = row.completed_messages & _COUNT_MASK
    row.ack_queued = False
    row.acks_sent += 1
