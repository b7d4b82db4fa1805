"""The bandwidth test's loop: what it hears and when it ends, with completions and words in scripted order."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from openmrc.programs.perf.stream import Lane, PerfStream, Senders
from openmrc.programs.perf.words import Carried, Done, Taken
from openmrc.verbs import WcOpcode

WRITES = 4
QPN = 77


class Scripted:
    """A conversation whose turns are known: of each, completions of writes, immediates, and words that arrive."""

    timeout = 20.0
    peer = "peer"

    def __init__(self, *turns: tuple[int, int, list[Any]]) -> None:
        self._turns = list(turns)
        self.words: list[Any] = []
        self.said: list[Any] = []

    def wait(self, cq: Any, seconds: float, most: int, or_message: bool) -> list[Any]:
        written, arrived, words = self._turns.pop(0)
        self.words += words
        writes = SimpleNamespace(wr_id=1, qp_num=QPN, opcode=WcOpcode.RDMA_WRITE)
        immediates = SimpleNamespace(wr_id=0, qp_num=QPN, opcode=WcOpcode.RECV_RDMA_WITH_IMM)
        return [writes] * written + [immediates] * arrived

    def has_message(self) -> bool:
        return bool(self.words)

    def hear(self, kind: type) -> Any:
        return self.words.pop(0)

    def tell(self, message: Any) -> None:
        self.said.append(message)

    def lost(self, what: str) -> Exception:
        return RuntimeError(what)


def lane(size: int, depth: int, goal: int, asked_group: int = 0) -> Lane:
    queue_pair = SimpleNamespace(qpn=QPN, post_send=lambda requests: None, post_recv=lambda count: None)
    connection: Any = SimpleNamespace(
        qp=queue_pair,
        remote=SimpleNamespace(regions=[SimpleNamespace(addr=0, r_key=0)]),
    )
    memory: Any = bytearray(size)
    return Lane(0, connection, memory, size, depth, immediate=True, goal=goal, asked_group=asked_group)


def stream(conversation: Scripted, duration: float = 0.0) -> PerfStream:
    cq: Any = None
    return PerfStream(
        conversation,  # type: ignore[arg-type]
        cq,
        [lane(1 << 16, depth=8, goal=1 << 62 if duration else WRITES)],
        senders=Senders.BOTH,
        duration=duration,
        stop=threading.Event(),
    )


def test_words_after_both_are_done_are_left_to_who_comes_next() -> None:
    done, carried = Done(WRITES, 1, 1.0, 1.0), Carried([])
    conversation = Scripted((4, 1, []), (0, 1, [Taken(0, 4), done, carried]), (0, 2, []))
    stream(conversation).run()
    assert conversation.words == [carried]
    assert [type(word) for word in conversation.said] == [Done]


def test_grants_are_heard_until_this_end_is_done_though_the_peer_is() -> None:
    conversation = Scripted((0, 4, [Done(WRITES, 1, 1.0, 1.0)]), (2, 0, [Taken(0, 2)]), (2, 0, [Taken(0, 4)]))
    stream(conversation).run()
    assert conversation.words == []


def test_a_timed_run_counts_what_has_completed_when_its_time_is_over_and_waits_for_the_rest() -> None:
    conversation = Scripted((3, 0, []), (0, 0, []), (8, 11, [Done(8, 1, 1.0, 1.0, late=3)]))
    run = stream(conversation, duration=0.1)
    wait = conversation.wait

    def slowly(*arguments: Any, **options: Any) -> Any:
        if len(conversation._turns) == 2:
            run._began -= 0.1  # as if it had taken so long
        return wait(*arguments, **options)

    conversation.wait = slowly  # type: ignore[method-assign]
    run.run()
    assert run.done is not None
    assert (run.done.iterations, run.done.late, run.done.bytes) == (3, 8, 3 << 16)
    assert run.done.peak_bps == 0, "as perftest prints it"
    assert 0.1 <= run.done.seconds < 1


def test_a_completion_stands_for_what_takes_two_milliseconds_and_a_quarter_of_the_depth_at_most() -> None:
    writes = lane(1 << 16, depth=128, goal=1 << 62)
    groups = {}
    for megabits in (0.1, 73, 1_000, 5_000, 50_000):
        writes.moderate(megabits * 1e6 / 8)
        groups[megabits] = writes.group
    assert groups == {0.1: 1, 73: 1, 1_000: 3, 5_000: 19, 50_000: 32}
    few = lane(1 << 16, depth=8, goal=1 << 62)
    few.moderate(50e9 / 8)
    assert few.group == 2


def test_large_writes_are_reported_one_by_one_at_first_small_ones_never() -> None:
    assert lane(1 << 16, depth=128, goal=1 << 62).group == 1
    assert lane(64, depth=128, goal=1 << 62).group == 32


def test_who_asks_for_a_number_of_writes_per_completion_gets_it_at_every_rate() -> None:
    writes = lane(1 << 16, depth=128, goal=1 << 62, asked_group=100)
    writes.moderate(1.0)
    assert writes.group == 100
