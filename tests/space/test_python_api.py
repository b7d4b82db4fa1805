"""Writes over connections of every kind, against a sequential model of the peer's memory and of the completions."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness import strangers
from harness.live_pair import addresses
from openmrc.verbs import (
    Connection,
    ConnectionOptions,
    Context,
    ContextAttr,
    DeadlineError,
    Listener,
    MemoryRegion,
    SendWr,
    WcOpcode,
    WorkCompletion,
    WriteBatch,
    connect,
)

from .drawing import drawn

pytestmark = pytest.mark.needs("jit")
MESSAGES = 4  # of each connection
SECONDS = 60.0  # for any wait, also on a busy machine
OPTIONS = ConnectionOptions(mpr=8, max_wimm=16, max_recv_wr=64, max_send_wr=64, user_timeout=SECONDS)
_NUMBERS = itertools.count(100)


@dataclass
class Joined:
    """One connection: its ends, the memory that is sent from, and that which is written."""

    ends: tuple[Connection, Connection]
    source: MemoryRegion
    target: MemoryRegion


@contextmanager
def connections(row: SimpleNamespace) -> Iterator[list[Joined]]:
    """Yield as many connections between two contexts as the row says, on its network."""
    attr = ContextAttr(
        max_qp=8, max_peers=2, max_mr=16, max_mpr=8, max_wimm=16, max_recv_wr=64, max_send_wr=64, evs_per_plane=2,
        segmentation=row.segmentation,
    )  # fmt: skip
    number = next(_NUMBERS)
    with ExitStack() as stack:
        contexts = [
            stack.enter_context(impaired(row, addresses(side, number, row.planes, row.family), attr))
            for side in range(2)
        ]
        queues: list[Any] = [each.create_cq(512) if row.cq == "shared" else None for each in contexts]
        listener = stack.enter_context(Listener(contexts[1], "127.0.0.1", 0, on_refusal=fails))
        pool = stack.enter_context(ThreadPoolExecutor(1))

        def join() -> Joined:
            options = replace(OPTIONS, path_mtu=row.mtu)
            source, target = (each.alloc_pd().reg_mr(bytearray(MESSAGES * row.size)) for each in contexts)
            theirs = pool.submit(listener.accept, regions=[target], options=options, cq=queues[1], timeout=SECONDS)
            if row.stranger:
                strangers.say(listener.port, b"GET / HTTP/1.1\r\n\r\n")
            more: dict[str, Any] = {"regions": [source], "options": options, "cq": queues[0], "timeout": SECONDS}
            ours = connect(contexts[0], "127.0.0.1", listener.port, **more)
            return Joined((ours, theirs.result()), source, target)

        if row.life == "second":
            for earlier in [join() for _ in range(row.connections)]:
                earlier.ends[0].qp.post_write(earlier.source, *place_of(earlier))
                for end in earlier.ends:
                    end.close()
                for queue in filter(None, queues):
                    queue.poll()
        yield [join() for _ in range(row.connections)]


def impaired(row: SimpleNamespace, planes: list[str], attr: ContextAttr) -> Context:
    """Return a context with the row's impairments, after others by which nothing would arrive."""
    faults = f"delay: {row.round_trip_ms * 500}us, loss: {row.loss.rstrip('%')}%"
    context = Context(planes, attr, faults=faults if row.faults == "from the start" else "loss: 100%")
    if row.faults == "after others were cleared":
        context.impair("")
        context.impair(faults)
    elif row.faults == "instead of others":
        context.impair(faults, replace=True)
    return context


def fails(reason: str) -> None:
    """Be a callback with a mistake."""
    raise ValueError(reason)


def interrupts(*_: object) -> None:
    """Handle a signal as Python handles Ctrl-C."""
    raise KeyboardInterrupt


def place_of(each: Joined) -> tuple[int, int]:
    """Return address and key of the memory that is written."""
    remote = each.ends[0].remote.regions[0]
    return remote.addr, remote.r_key


def give_up(row: SimpleNamespace, each: Joined) -> None:
    """Write the first message, and do not wait for its end."""
    ours, local, remote = each.ends[0], each.source[: row.size], each.ends[0].remote.regions[0][: row.size]

    async def cancelled() -> None:
        task = asyncio.ensure_future(ours.write_async(local, remote, timeout=SECONDS))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with suppress(DeadlineError, KeyboardInterrupt):
        match row.before:
            case "timed out":
                ours.write(local, remote, timeout=1e-6)
            case "cancelled":
                asyncio.run(cancelled())
            case "interrupted":
                before = signal.signal(signal.SIGALRM, interrupts)
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-4)
                    ours.write(local, remote, timeout=SECONDS)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    signal.signal(signal.SIGALRM, before)


def immediate_of(row: SimpleNamespace, connection: int, message: int) -> int | None:
    return (connection << 16 | message) if row.immediate else None


def written(row: SimpleNamespace, number: int, each: Joined) -> list[WorkCompletion]:
    """Send all messages of a connection in the way of the row; return their completions."""
    ours, local, remote = each.ends[0], each.source, each.ends[0].remote.regions[0]
    size = row.size
    places = [slice(message * size, (message + 1) * size) for message in range(MESSAGES)]

    def write(message: int) -> WorkCompletion:
        at = places[message]
        return ours.write(local[at], remote[at], immediate=immediate_of(row, number, message), timeout=SECONDS)

    async def write_all() -> list[WorkCompletion]:
        tasks = (
            ours.write_async(local[at], remote[at], immediate=immediate_of(row, number, message), timeout=SECONDS)
            for message, at in enumerate(places)
        )
        return list(await asyncio.gather(*tasks))

    match row.call:
        case "write":
            return [write(message) for message in range(MESSAGES)]
        case "write_async":
            return asyncio.run(write_all())
        case "threads":
            with ThreadPoolExecutor(MESSAGES) as pool:
                return list(pool.map(write, range(MESSAGES)))
    requests = [
        SendWr(
            wr_id=message,
            local=local[at],
            remote_addr=remote[at].addr,
            r_key=remote.r_key,
            immediate=immediate_of(row, number, message),
        )
        for message, at in enumerate(places)
    ]
    if row.call == "post_batch":
        ours.qp.post_batch(
            WriteBatch(
                local, remote.addr, remote.r_key, lengths=size, local_offsets=[at.start for at in places],
                remote_offsets=[at.start for at in places], signaled="all",
            )
        )  # fmt: skip
    elif row.call == "post_write":
        for each_request in requests:
            ours.qp.post_write(
                each_request.local,
                each_request.remote_addr,
                each_request.r_key,
                wr_id=each_request.wr_id,
                immediate=each_request.immediate,
            )
    else:
        ours.qp.post_send(requests)
    done: list[WorkCompletion] = []
    while len(done) < MESSAGES:
        done += ours.send_cq.wait(SECONDS)
    assert [completion.wr_id for completion in done] == [0 if row.call == "post_batch" else n for n in range(MESSAGES)]
    return done


@drawn("python_api", few=6, quick=lambda row: row.round_trip_ms < 100 and row.size < 1_000_000)
def test_the_memory_and_the_completions_are_those_of_the_model(row: SimpleNamespace) -> None:
    with connections(row) as joined:
        for number, each in enumerate(joined):
            model = random.Random(number).randbytes(MESSAGES * row.size)
            each.source.bytes[:] = np.frombuffer(model, np.uint8)
            give_up(row, each)
            if row.immediate:
                each.ends[1].qp.post_recv(MESSAGES)
            done = written(row, number, each)
            assert all(completion.ok and completion.byte_len == row.size for completion in done)
            assert {completion.opcode for completion in done} == {WcOpcode.RDMA_WRITE}
            received: list[WorkCompletion] = []
            while row.immediate and len(received) < MESSAGES:
                received += each.ends[1].recv_cq.wait(SECONDS)
            expected = [immediate_of(row, number, message) for message in range(MESSAGES)] if row.immediate else []
            got = [completion.immediate for completion in received]
            assert (sorted(got, key=str) if row.call == "threads" else got) == expected  # threads begin in any order
            assert {completion.byte_len for completion in received} <= {row.size}
            assert each.target.bytes.tobytes() == model
            assert each.ends[0].send_cq.poll() == [] == each.ends[1].recv_cq.poll()
