"""Send and receive queues: writes from post to completion, and posted receives.

Writes complete in the order they were posted, on the peer's transport acknowledgement; a reliability SACK never
completes a write (MRC §6.1, §7.5).
"""

from enum import IntEnum

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import user_timeout
from openmrc.engine.congestion import scheduler
from openmrc.engine.state import completions, timers
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.queue_pairs import message_row
from openmrc.engine.state.tables import CompletionKind, Deadline, Engine, WcStatus, WriteRequest
from openmrc.units import NEVER

MAX_MESSAGE = (1 << 31) - 1  # bytes, the most an InfiniBand message may have


class PostStatus(IntEnum):
    """Result of a post; the verbs layer maps all but OK to errno."""

    OK = 0
    FULL = 1  # the send or receive queue is full
    WRONG_STATE = 2
    TOO_LONG = 3


@kernel
def post_write(engine: Engine, now: int, qp: int, write: WriteRequest) -> int:
    """Append a write to the send queue."""
    row = engine.qps[qp]
    if row.state != QpState.RTS and row.state != QpState.ERROR:
        return PostStatus.WRONG_STATE
    if row.message_tail - row.message_head > row.message_mask:
        return PostStatus.FULL
    if write.length < 0 or write.length > MAX_MESSAGE:
        return PostStatus.TOO_LONG
    message = message_row(engine, qp, row.message_tail)
    row.message_tail += 1
    message.wr_id = write.wr_id
    message.local = write.local
    message.length = write.length
    message.va = write.va
    message.r_key = write.r_key
    message.immediate = write.immediate
    message.has_immediate = write.has_immediate
    message.solicited = write.solicited
    message.signaled = write.signaled | int(row.sq_signal_all)
    message.continues = write.continues
    message.l_key = write.l_key
    message.packets = max(1, (write.length + row.path_mtu - 1) // row.path_mtu)
    message.status = WcStatus.SUCCESS
    if row.state == QpState.ERROR:
        flush(engine, qp, WcStatus.WR_FLUSH_ERR)
        return PostStatus.OK
    scheduler.wake(engine, qp)
    if timers.due(engine, qp, Deadline.RTO) == NEVER:  # also covers a write whose first packet cannot be sent
        user_timeout.begin(engine, now, qp)
    return PostStatus.OK


@kernel
def post_receive(engine: Engine, qp: int, wr_id: int) -> int:
    """Append a receive for one WriteIMM. MRC has no RNR NAK: a WriteIMM without a posted receive is an error."""
    row = engine.qps[qp]
    if row.state == QpState.RESET:
        return PostStatus.WRONG_STATE
    if row.receive_tail - row.receive_head > row.receive_mask:
        return PostStatus.FULL
    engine.receives[row.receive_base + (row.receive_tail & row.receive_mask)].wr_id = wr_id
    row.receive_tail += 1
    if row.state == QpState.ERROR:
        flush(engine, qp, WcStatus.WR_FLUSH_ERR)
    return PostStatus.OK


@rare_kernel
def lose_memory(engine: Engine, qp: int, l_key: int) -> bool:
    """Mark the oldest request that has not completed and reads from a region; return whether there is one."""
    row = engine.qps[qp]
    number = row.message_head
    while number < row.message_tail and message_row(engine, qp, number).l_key != l_key:
        number += 1
    if number == row.message_tail:
        return False
    while number + 1 < row.message_tail and message_row(engine, qp, number).continues == 1:
        number += 1  # the last write of a request reports for all
    message_row(engine, qp, number).status = WcStatus.LOC_PROT_ERR
    return True


@kernel
def complete_oldest(engine: Engine, qp: int, status: int) -> None:
    """Remove the oldest write from the send queue; its request reports failures always, successes if signaled."""
    row = engine.qps[qp]
    message = message_row(engine, qp, row.message_head)
    row.message_head += 1
    row.message_current = max(row.message_current, row.message_head)
    if message.has_immediate == 1:
        row.wimm_done += 1
    if message.continues == 0 and (message.signaled == 1 or status != WcStatus.SUCCESS):
        completions.push(engine, CompletionKind.SEND, qp, message.wr_id, status, message.length)


@rare_kernel
def flush(engine: Engine, qp: int, first_status: int) -> None:
    """Complete all queued requests: the oldest with `first_status`, one whose memory is gone so, others as flushed."""
    row = engine.qps[qp]
    status = first_status
    while row.message_head < row.message_tail:
        message = message_row(engine, qp, row.message_head)
        complete_oldest(engine, qp, status if message.status == WcStatus.SUCCESS else message.status)
        if message.continues == 0:
            status = WcStatus.WR_FLUSH_ERR.value
    while row.receive_head < row.receive_tail:
        wr_id = engine.receives[row.receive_base + (row.receive_head & row.receive_mask)].wr_id
        row.receive_head += 1
        completions.push(engine, CompletionKind.RECEIVE, qp, wr_id, WcStatus.WR_FLUSH_ERR, 0)
