"""Completion queues: announcements, several waiters, overruns."""

from __future__ import annotations

import asyncio
import math
import mmap
import os
import select
import threading
import time
from pathlib import Path

import pytest

from harness.live_pair import SMALL, Pair, addresses, joined
from openmrc.live.datapath.loop import attendance
from openmrc.verbs import (
    AsyncEventKind,
    BusyError,
    ClosedError,
    CompletionChannel,
    CompletionQueue,
    ConnectionOptions,
    Context,
    DeadlineError,
    InvalidArgumentError,
    NoRoomError,
    OverrunError,
    PeerAddress,
    QpInitAttr,
    QpState,
    QueuePair,
    RecvWr,
)

MANY = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64, timeout=13, linear_count=7, exponential_count=7)


def loopback_qp(pair: Pair, cq: CompletionQueue, depth: int = 16) -> QueuePair:
    """Return a queue pair in ERROR: each request that is posted to it completes at once, as flushed."""
    context = pair.contexts[0]
    init = QpInitAttr(send_cq=cq, recv_cq=cq, max_send_wr=depth, max_recv_wr=depth)
    qp = context.create_qp(context.alloc_pd(), init)
    qp.modify(state=QpState.INIT, access_flags=0)
    qp.modify(state=QpState.ERROR)
    return qp


def test_an_armed_queue_announces_itself_on_its_channel_once_for_each_arming() -> None:
    with joined() as pair:
        channel = pair.contexts[0].create_comp_channel()
        cq = pair.contexts[0].create_cq(16, "mine", channel)
        qp = loopback_qp(pair, cq)
        with pytest.raises(DeadlineError):
            channel.get_event(0.01)
        qp.post_recv()
        with pytest.raises(DeadlineError):
            channel.get_event(0.01)  # it was not armed
        cq.notify()
        qp.post_recv(2)
        assert channel.get_event(20) is cq
        assert len(cq.poll()) == 3
        with pytest.raises(DeadlineError):
            channel.get_event(0.01)
        cq.ack_cq_events(1)
        qp.destroy()
        cq.destroy()
        channel.destroy()


def test_a_queue_with_unacknowledged_events_cannot_be_given_back() -> None:
    with joined() as pair:
        channel = pair.contexts[0].create_comp_channel()
        cq = pair.contexts[0].create_cq(16, None, channel)
        qp = loopback_qp(pair, cq)
        cq.notify()
        qp.post_recv()
        channel.get_event(20)
        qp.destroy()
        with pytest.raises(BusyError, match="1 events"):
            cq.destroy(timeout=0.01)
        with pytest.raises(ValueError, match="2 events"):
            cq.ack_cq_events(2)
        cq.ack_cq_events(1)
        cq.destroy()


def test_every_queue_of_a_channel_gets_its_turn() -> None:
    with joined() as pair:
        context = pair.contexts[0]
        channel = context.create_comp_channel()
        cqs = [context.create_cq(64, number, channel) for number in range(2)]
        qp = context.create_qp(
            context.alloc_pd(), QpInitAttr(send_cq=cqs[0], recv_cq=cqs[1], max_send_wr=16, max_recv_wr=16)
        )
        region = qp.pd.reg_mr(bytearray(8))
        qp.modify(state=QpState.INIT, access_flags=0)
        remote = PeerAddress(planes=pair.contexts[1].query_device().planes)
        qp.modify(state=QpState.RTR, remote=remote, dest_qpn=3, rq_psn=0, path_mtu=1024, max_wimm_dest=4, mpr_dest=4)
        qp.modify(state=QpState.RTS, sq_psn=0, max_wimm=4, mpr=4, timeout=20, linear_count=1, exponential_count=1)
        qp.modify(state=QpState.ERROR)
        for cq in cqs:
            cq.notify()
        qp.post_recv()
        qp.post_write(region, 0, 1)
        assert {channel.get_event(20).cq_context for _ in cqs} == {0, 1}


def test_a_channel_works_in_an_event_loop_and_ends_with_its_context() -> None:
    async def wait(channel: CompletionChannel) -> CompletionQueue:
        return await channel.get_event_async(20)

    with joined() as pair:
        channel = pair.contexts[0].create_comp_channel()
        cq = pair.contexts[0].create_cq(16, None, channel)
        qp = loopback_qp(pair, cq)
        cq.notify()
        threading.Timer(0.05, qp.post_recv).start()
        assert asyncio.run(wait(channel)) is cq
        threading.Timer(0.05, pair.contexts[0].close).start()
        with pytest.raises(ClosedError):
            channel.get_event(20)


def test_a_readable_descriptor_means_that_poll_finds_a_completion() -> None:
    with joined() as pair:
        cq = pair.contexts[0].create_cq(64)
        qp = loopback_qp(pair, cq)
        poller = select.poll()
        poller.register(cq.fileno(), select.POLLIN)
        for _ in range(2000):
            cq.notify()
            thread = threading.Thread(target=qp.post_recv)
            thread.start()
            assert poller.poll(20_000)
            assert len(cq.poll()) == 1
            thread.join()


@pytest.mark.parametrize("n", [1, 16])
def test_two_tasks_that_wait_for_one_queue_both_get_theirs(n: int) -> None:
    async def both(cq: CompletionQueue, qp: QueuePair) -> list[int]:
        waiting = [asyncio.create_task(cq.wait_async(5, n)) for _ in range(2)]
        await asyncio.sleep(0.05)
        qp.post_recv([RecvWr(wr_id=1)])
        if n > 1:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        qp.post_recv([RecvWr(wr_id=2)])
        return sorted([each.wr_id for taken in await asyncio.gather(*waiting) for each in taken])

    with joined() as pair:
        cq = pair.contexts[0].create_cq(16)
        began = time.monotonic()
        assert asyncio.run(both(cq, loopback_qp(pair, cq))) == [1, 2]
        assert time.monotonic() - began < 4


def test_threads_that_wait_for_one_queue_share_its_completions() -> None:
    with joined() as pair:
        cq = pair.contexts[0].create_cq(256)
        qp = loopback_qp(pair, cq)
        taken: list[int] = []

        def take() -> None:
            for _ in range(50):
                taken.extend(each.wr_id for each in cq.wait(20, 1))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(200):
            qp.post_recv([RecvWr(wr_id=number)])
        for thread in threads:
            thread.join(20)
        assert sorted(taken) == list(range(200))


def test_a_queue_that_gets_more_than_it_holds_is_an_event_and_unusable() -> None:
    with joined() as pair:
        context = pair.contexts[0]
        cq = context.create_cq(4)
        qp = loopback_qp(pair, cq)
        qp.post_recv(4)
        assert len(cq.poll()) == 4
        qp.post_recv(5)
        while (event := context.get_async_event(20)).kind != AsyncEventKind.CQ_ERR:
            pass
        assert event.cq is cq
        with pytest.raises(OverrunError, match="more than 4"):
            cq.poll()
        with pytest.raises(OverrunError):
            cq.wait(20)
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)  # others go on


def test_an_overrun_takes_the_queue_pairs_of_the_queue_to_error() -> None:
    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        for _ in range(end.send_cq.cqe + 1):
            end.qp.post_write(pair.regions[0][:8], target.addr, target.r_key)
            end.qp.drain(20)
        deadline = time.monotonic() + 20
        while end.qp.state != QpState.ERROR and time.monotonic() < deadline:
            time.sleep(0.01)
        assert end.qp.state == QpState.ERROR


def test_completion_queues_are_as_many_as_the_context_allows() -> None:
    with Context(addresses(0, 222, 1, 4), SMALL) as context:
        kept = [context.create_cq(16) for _ in range(1000)]
        assert "16" in repr(kept[0])
        for cq in kept:
            cq.destroy()
        most = context.query_device().max_cq
        kept = [context.create_cq(1) for _ in range(most)]
        with pytest.raises(NoRoomError, match="max_cq"):
            context.create_cq(1)
        kept.pop().destroy()
        context.create_cq(1)
        for wrong in (0, context.query_device().max_cqe + 1):
            with pytest.raises(InvalidArgumentError, match="cqe"):
                context.create_cq(wrong)


def test_waits_take_infinity_and_refuse_what_is_no_number() -> None:
    with joined() as pair:
        cq = pair.contexts[0].create_cq(16)
        qp = loopback_qp(pair, cq)
        threading.Timer(0.05, qp.post_recv).start()
        assert len(cq.wait(math.inf)) == 1
        threading.Timer(0.05, qp.post_recv).start()
        assert len(asyncio.run(cq.wait_async(math.inf))) == 1
        pair.ends[0].qp.drain(math.inf)
        with pytest.raises(InvalidArgumentError, match="not a number"):
            cq.wait(math.nan)


def test_a_queue_takes_memory_only_for_completions_that_were_in_it() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * mmap.PAGESIZE

    with Context(addresses(0, 234, 1, 4), SMALL) as context:
        kept = [context.create_cq(1)]  # what the first of all allocates
        before = resident()
        kept += [context.create_cq(512) for _ in range(50)]
        assert (resident() - before) / 50 < kept[-1]._records.ring.nbytes / 2


@pytest.mark.parametrize("elsewhere", [False, True], ids=["at the sockets", "while traffic is high"])
def test_a_wait_beside_a_descriptor_ends_with_a_completion_the_descriptor_or_the_time(
    elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined() as pair:
        if elsewhere:
            monkeypatch.setattr(pair.contexts[0].nic.completions, "wait", lambda *_: attendance.BUSY)
        cq = pair.contexts[0].create_cq(16)
        qp = loopback_qp(pair, cq)
        reading, writing = os.pipe()
        began = time.monotonic()
        assert cq.wait_beside(reading, 0.05) == []
        assert time.monotonic() - began >= 0.05
        os.write(writing, b"x")
        assert cq.wait_beside(reading, 20) == []
        assert time.monotonic() - began < 10
        qp.post_recv(2)
        assert len(cq.wait_beside(reading, 20)) == 2
        os.close(reading)
        threading.Timer(0.05, qp.post_recv).start()
        assert len(cq.wait_beside(-1, 20)) == 1, "no descriptor"
        os.close(writing)
