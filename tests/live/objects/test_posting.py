"""Posting: places of a queue, the command ring, interrupted calls, and what a reset drops."""

from __future__ import annotations

import gc
import linecache
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import pytest

from harness.data_gaps import longest_gap
from harness.live_pair import SMALL, Pair, joined
from openmrc.live.datapath.rows import COMMANDS
from openmrc.live.objects import posting
from openmrc.live.objects.memory import RegionSlice
from openmrc.verbs import (
    ConnectionOptions,
    InvalidArgumentError,
    Listener,
    NoRoomError,
    QpState,
    RecvWr,
    SendWr,
    connect,
)

DEPTH = 16


def _options(depth: int = DEPTH) -> ConnectionOptions:
    return ConnectionOptions(
        mpr=4, max_wimm=16, max_recv_wr=DEPTH, max_send_wr=depth, timeout=12, linear_count=7, exponential_count=4
    )


def test_who_polls_late_loses_no_completion() -> None:
    with joined(options=_options()) as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        done: list[int] = []
        for number in range(20 * DEPTH):
            if number % DEPTH == 0:
                end.qp.drain(20)
                done += [each.wr_id for each in end.send_cq.poll(1000)]
            end.qp.post_write(pair.regions[0][:8], target.addr, target.r_key, wr_id=number)
        end.qp.drain(20)
        done += [each.wr_id for each in end.send_cq.poll(1000)]
        assert done == list(range(20 * DEPTH))


class InterruptError(BaseException):
    """What a signal handler raises."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with joined(options=_options()) as opened:
        yield opened


@pytest.mark.parametrize("step", range(1, 60))
def test_an_interrupted_post_leaves_nothing_that_was_not_submitted(pair: Pair, step: int) -> None:
    """Interrupts before every line of `posting.py` in turn; the queue pair must stay usable, its memory free."""
    left = step

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # Trace functions run at steps where signal handlers do not: while a `with` is left, and at a bare `try`.
        is_step = event == "line" and text != "try:" and not text.startswith("with ")
        if frame.f_code.co_filename == posting.__file__ and is_step:
            left -= 1
            if left == 0:
                raise InterruptError
        return trace

    end, target = pair.ends[0], pair.ends[0].remote.regions[0]
    write = SendWr(local=pair.regions[0][:8], remote_addr=target.addr, r_key=target.r_key)
    sys.settrace(trace)
    try:
        end.qp.post_send([write] * 3)
    except InterruptError:
        pass
    finally:
        sys.settrace(None)
    end.qp.drain(20)
    assert not end.context.nic.posting.reads_from(end.qp, pair.regions[0])
    end.send_cq.poll(1000)
    end.write(pair.regions[0][:8], target, timeout=20)


class Collecting(RegionSlice):
    """A slice at which a post looks while it holds the posting lock; the garbage collector runs then."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name == "offset":
            gc.collect()
        return super().__getattribute__(name)


class Late:
    """What closes its connection when the garbage collector finds it."""

    def __init__(self, pair: Pair, ends: list[str]) -> None:
        self.region = pair.contexts[0].alloc_pd().reg_mr(bytearray(64))
        with Listener(pair.contexts[1], "127.0.0.1", 0) as listener, ThreadPoolExecutor(1) as pool:
            accepted = pool.submit(listener.accept, pd=pair.regions[1].pd, options=_options(), timeout=20)
            self.connection = connect(
                pair.contexts[0], "127.0.0.1", listener.port, regions=[self.region], options=_options(), timeout=20
            )
            accepted.result().close()
        self.ends, self.itself = ends, self

    def __del__(self) -> None:
        try:
            self.connection.close()
            self.region.dereg()
            self.ends.append("closed")
        except Exception as error:
            self.ends.append(repr(error))


@pytest.mark.parametrize("where", ["main", "thread"])
@pytest.mark.parametrize("within", ["post", "change"])
def test_a_finalizer_in_the_middle_of_another_call_closes_its_connection(
    pair: Pair, where: str, within: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock itself for which closing would wait; the connection's row and key are free afterwards."""
    call: Callable[[], object]
    ends: list[str] = []
    end, context = pair.ends[0], pair.contexts[0]
    Late(pair, ends)
    if within == "post":
        target = end.remote.regions[0]
        part = Collecting(pair.regions[0], 0, 8)
        call = partial(end.qp.post_write, part, target.addr, target.r_key)
    else:
        monkeypatch.setattr(context.nic._impairments, "begin", lambda *_: gc.collect())
        call = partial(context.impair, "")
    if where == "main":
        call()
    else:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    assert ends == ["closed"]
    context.set_plane(0, True)  # made after what the finalizer asked for
    assert context.nic._qps.count(None) == 1
    assert len(context.nic._regions) == 1


def test_a_full_queue_refuses_and_what_was_posted_before_is_sent() -> None:
    with joined(options=_options()) as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        pair.contexts[1].impair("down: plane 0; down: plane 1")
        write = SendWr(local=pair.regions[0][:8], remote_addr=target.addr, r_key=target.r_key)
        with pytest.raises(NoRoomError, match=f"its send queue of {DEPTH} is full"):
            end.qp.post_send([write] * (DEPTH + 3))
        assert end.qp.outstanding() == DEPTH
        pair.contexts[1].impair("clear: all")
        end.qp.drain(20)
        assert len(end.send_cq.poll(100)) == DEPTH


def test_more_requests_than_the_command_ring_holds_go_in_order() -> None:
    count = 2 * COMMANDS + 5
    with joined(options=_options(count), attr=replace(SMALL, max_send_wr=count)) as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        memory = pair.regions[0][:8]
        end.qp.post_send(
            SendWr(wr_id=number, local=memory, remote_addr=target.addr, r_key=target.r_key) for number in range(count)
        )
        end.qp.drain(20)
        assert [each.wr_id for each in end.send_cq.poll(2 * count)] == list(range(count))


def test_a_reset_drops_what_was_submitted() -> None:
    with joined(options=_options()) as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        write = SendWr(local=pair.regions[0][:8], remote_addr=target.addr, r_key=target.r_key)
        end.qp.post_send([write] * DEPTH)
        end.qp.modify(state=QpState.RESET)
        assert end.qp.outstanding() == 0
        with pytest.raises(InvalidArgumentError, match="posting to the send queue in RESET"):
            end.qp.post_send(write)
        with pytest.raises(InvalidArgumentError, match="posting to the receive queue in RESET"):
            end.qp.post_recv(RecvWr())


def test_receives_posted_in_error_complete_as_flushed() -> None:
    with joined(options=_options()) as pair:
        end = pair.ends[0]
        end.qp.modify(state=QpState.ERROR)
        for _ in range(5 * DEPTH):
            end.qp.post_recv()
            assert [each.ok for each in end.recv_cq.wait(20)] == [False]


def test_threads_that_post_to_one_queue_pair_each_get_theirs() -> None:
    with joined(options=_options(128)) as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]

        def post(first: int) -> None:
            for number in range(first, first + 30):
                end.qp.post_write(pair.regions[0][:8], target.addr, target.r_key, wr_id=number)

        threads = [threading.Thread(target=post, args=(1000 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end.qp.drain(20)
        done = [each.wr_id for each in end.send_cq.poll(1000)]
        assert sorted(done) == [1000 * n + k for n in range(4) for k in range(30)]
        assert all([d for d in done if d // 1000 == n] == [1000 * n + k for k in range(30)] for n in range(4))


@pytest.mark.needs("jit")  # tens of thousands of writes
def test_every_completion_wakes_who_waits() -> None:
    with joined(options=_options()) as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        for _ in range(300):
            for _ in range(DEPTH):
                end.qp.post_write(pair.regions[0][:8], target.addr, target.r_key)
            done = 0
            while done < DEPTH:
                done += len(end.send_cq.wait(20))


def test_the_longest_gap_is_the_time_without_data() -> None:
    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        end.write(pair.regions[0][:8], target, timeout=20)
        longest_gap(pair.contexts[1])
        time.sleep(0.05)
        end.write(pair.regions[0][:8], target, timeout=20)
        assert longest_gap(pair.contexts[1]) >= 0.05
        assert longest_gap(pair.contexts[1]) < 20
