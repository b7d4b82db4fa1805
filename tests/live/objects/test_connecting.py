"""Connections: each write reports its own completion, whatever became of those before it and beside it.

The oracle is the memory of the peer, and lengths that differ for every write.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import numpy as np
import pytest

from harness.live_pair import Pair, joined
from openmrc.live.objects.exchange import dial
from openmrc.verbs import (
    Connection,
    ConnectionOptions,
    ContextAttr,
    DeadlineError,
    ExchangeError,
    Listener,
    RemoteRegion,
    connect,
)

SIZE = 1 << 20


@contextlib.contextmanager
def with_a_write_under_way(pair: Pair) -> Iterator[None]:
    """Let nothing arrive at the peer until the body is over."""
    pair.contexts[1].impair("loss: 100%")
    yield
    pair.contexts[1].impair("clear: all")


def check_next_write(pair: Pair, end: Connection, target: RemoteRegion) -> None:
    """Write all of the region; it must be there when the write reports its length."""
    data = bytes(range(256)) * (SIZE // 256)
    pair.regions[0].bytes[:] = np.frombuffer(data, np.uint8)
    done = end.write(pair.regions[0], target, timeout=20)
    assert pair.regions[1].bytes.tobytes() == data
    assert done.byte_len == SIZE
    assert end.send_cq.poll() == []


def test_a_write_that_timed_out_is_not_reported_by_the_next() -> None:
    with joined(size=SIZE) as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        with with_a_write_under_way(pair), pytest.raises(DeadlineError):
            end.write(pair.regions[0][:1000], target, timeout=0.1)
        check_next_write(pair, end, target)


def test_a_write_that_was_cancelled_is_not_reported_by_the_next() -> None:
    async def cancelled(end: Connection) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(end.write_async(pair.regions[0][:1000], target, timeout=20), 0.1)

    with joined(size=SIZE) as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        with with_a_write_under_way(pair):
            asyncio.run(cancelled(end))
        check_next_write(pair, end, target)


@pytest.mark.needs("jit")  # interpreted, an interruption within a kernel leaves its lock taken; compiled code has none
def test_interrupted_writes_are_not_reported_by_the_next() -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        gc.collect()  # an interruption of what is deleted would be lost
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for length in range(1, 101):
                with contextlib.suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 * length)
                    end.write(pair.regions[0][:60_000], target, timeout=20)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                assert end.write(pair.regions[0][:length], target, timeout=20).byte_len == length
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@pytest.mark.needs("jit")  # interpreted, the loop starves beside four threads that wait
def test_threads_that_write_at_once_each_get_their_own() -> None:
    def write(number: int) -> None:
        for length in range(number, 400, threads):
            seen[length] = end.write(pair.regions[0][:length], target, timeout=20).byte_len

    threads = 6
    seen: dict[int, int] = {}
    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        writers = [threading.Thread(target=write, args=[number]) for number in range(threads)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
    assert seen == {length: length for length in range(400)}


def test_tasks_that_write_at_once_each_get_their_own() -> None:
    async def write(length: int) -> int:
        return (await end.write_async(pair.regions[0][:length], target, timeout=20)).byte_len

    async def write_all() -> list[int]:
        return await asyncio.gather(*(write(length) for length in range(50)))

    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        began = time.monotonic()
        assert asyncio.run(write_all()) == list(range(50))
        assert time.monotonic() - began < 10


def test_a_write_leaves_other_completions_to_those_who_poll() -> None:
    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        for number in range(5):
            end.qp.post_write(pair.regions[0][: 10 + number], target.addr, target.r_key, wr_id=number)
        assert end.write(pair.regions[0][:100], target, timeout=20).byte_len == 100
        assert [(each.wr_id, each.byte_len) for each in end.send_cq.poll(3)] == [(0, 10), (1, 11), (2, 12)]
        assert [each.wr_id for each in end.send_cq.wait(1)] == [3, 4]


def test_a_thread_that_waits_gets_what_a_write_beside_it_read() -> None:
    def wait() -> None:
        for _ in range(200):
            taken.extend(each.wr_id for each in end.send_cq.wait(20, 1))

    taken: list[int] = []
    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        waiter = threading.Thread(target=wait)
        waiter.start()
        for number in range(200):
            end.qp.post_write(pair.regions[0][:10], target.addr, target.r_key, wr_id=number)
            assert end.write(pair.regions[0][:number], target, timeout=20).byte_len == number
        waiter.join(20)
        assert taken == list(range(200))


def test_a_peer_whose_offer_is_out_of_range_is_told_why() -> None:
    with joined() as pair, Listener(pair.contexts[1], "127.0.0.1", 0) as listener:
        accepting = threading.Thread(target=_accept_none, args=[listener])
        accepting.start()
        channel = dial("127.0.0.1", listener.port, time.monotonic() + 10)
        channel.tell({"qpn": 2})
        with pytest.raises(ExchangeError, match=r"refused: .*qpn"):
            channel.hear_offer(timeout=10)
        channel.close()
        accepting.join(20)


def _accept_none(listener: Listener) -> None:
    with pytest.raises(DeadlineError):
        listener.accept(pd=listener.context.alloc_pd(), timeout=2)


def test_an_error_about_many_queue_pairs_is_a_few_lines_and_names_those_that_wait() -> None:
    attr = ContextAttr(max_qp=64, max_peers=2, max_mr=4, max_mpr=4, max_wimm=16, max_recv_wr=64, evs_per_plane=4)
    with joined(planes=4, attr=attr) as pair, Listener(pair.contexts[1], "127.0.0.1", 0) as listener:
        ends: list[Connection] = []
        options = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64)
        accepting = threading.Thread(
            target=lambda: ends.extend(
                listener.accept(pd=pair.regions[1].pd, options=options, timeout=20) for _ in range(63)
            )
        )
        accepting.start()
        ours = [
            connect(pair.contexts[0], "127.0.0.1", listener.port, pd=pair.regions[0].pd, options=options, timeout=20)
            for _ in range(63)
        ]
        accepting.join(60)
        target = pair.ends[0].remote.regions[0]
        pair.contexts[1].impair("down: all")
        with pytest.raises(DeadlineError) as error:
            ours[-1].write(pair.regions[0][:10], target, timeout=0.5)
        assert len(str(error.value)) < 4000
        assert f"queue pair {ours[-1].qp.qpn:#x}" in str(error.value)
        assert "and 60 more queue pairs" in str(error.value)
