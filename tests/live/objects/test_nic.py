"""The rows of queue pairs and completion queues: how many there are, and who waits for whom."""

from __future__ import annotations

import threading

import pytest

from harness.live_pair import SMALL, addresses
from openmrc.verbs import CompletionQueue, Context, NoRoomError, QpInitAttr, QueuePair


def test_queues_are_created_while_another_thread_holds_the_loop() -> None:
    with Context(addresses(0, 237, 1, 4), SMALL) as context:
        made: list[QueuePair] = []
        creating = threading.Thread(target=lambda: made.append(_queue_pair(context, context.create_cq(8))), daemon=True)
        with context.nic.runtime.locked():
            creating.start()
            creating.join(20)
            assert len(made) == 1
        made[0].destroy()


def test_rows_of_destroyed_queue_pairs_are_used_again() -> None:
    with Context(addresses(0, 238, 1, 4), SMALL) as context:
        cq = context.create_cq(8)
        for _ in range(3):
            kept = [_queue_pair(context, cq) for _ in range(SMALL.max_qp)]
            assert {qp.row for qp in kept} == set(range(SMALL.max_qp))
            with pytest.raises(NoRoomError, match="max_qp"):
                _queue_pair(context, cq)
            for qp in kept:
                qp.destroy()


def test_rows_of_dropped_completion_queues_are_used_again() -> None:
    with Context(addresses(0, 239, 1, 4), SMALL) as context:
        most = context.query_device().max_cq
        for _ in range(3):
            kept = [context.create_cq(1) for _ in range(most)]
            with pytest.raises(NoRoomError, match="max_cq"):
                context.create_cq(1)
            kept.clear()  # without `destroy`


def _queue_pair(context: Context, cq: CompletionQueue) -> QueuePair:
    return context.create_qp(context.alloc_pd(), QpInitAttr(send_cq=cq, recv_cq=cq, max_send_wr=1, max_recv_wr=1))
