"""Waiting at the sockets: when a thread polls, for how long, and when it goes to sleep at once."""

from __future__ import annotations

from openmrc.live.datapath.loop import attendance, waiting
from openmrc.live.datapath.loop.leases import QUIET
from openmrc.units import NEVER, PS_PER_MS, PS_PER_US
from tests.live.datapath.memory_kernel import LOOK, Endpoint, endpoint

LIMIT = 20 * PS_PER_US
CQ = 0


def polling(here: Endpoint) -> None:
    here.lease.sleeps_until = NEVER
    here.nic.poll_limit = LIMIT
    here.kernel.now = here.now


def rest(here: Endpoint, time: int = PS_PER_MS) -> int:
    here.looks = []
    return waiting.rest(here.datapath, CQ, here.now + time)


def test_an_answer_that_comes_soon_is_found_without_sleep() -> None:
    with endpoint() as here:
        polling(here)
        here.readable = [0, 0, 1]
        assert rest(here) == 1
        assert here.looks == [0, 0, 0]
        assert (here.nic.polls, here.nic.sleeps) == (1, 0)


def test_a_poll_ends_at_its_limit_and_the_thread_sleeps_for_the_rest() -> None:
    with endpoint() as here:
        polling(here)
        began = here.now
        assert rest(here) == 0
        assert here.looks == [0] * (LIMIT // LOOK) + [PS_PER_MS - LIMIT]
        assert here.now - began == PS_PER_MS


def test_a_limit_of_nothing_never_polls() -> None:
    with endpoint() as here:
        polling(here)
        here.nic.poll_limit = 0
        rest(here)
        assert here.looks == [PS_PER_MS]


def test_polls_that_bring_nothing_become_rare() -> None:
    with endpoint() as here:
        polling(here)
        polled = []
        for number in range(400):
            rest(here)
            if len(here.looks) > 1:
                polled.append(number)
        assert polled == [0, 2, 6, 14, 30, 62, 126, 190, 254, 318, 382]


def test_a_poll_that_brings_something_makes_the_next_wait_poll_too() -> None:
    with endpoint() as here:
        polling(here)
        for _ in range(2):
            rest(here)
        here.readable = [0, 1]
        assert rest(here) == 1
        rest(here)
        assert here.looks[:2] == [0, 0]


def test_a_poll_ends_as_soon_as_others_want_the_processor() -> None:
    with endpoint() as here:
        polling(here)

        def give_way() -> int:
            here.now = here.kernel.now = here.now + 4 * PS_PER_MS
            return 0

        here.patch.setattr(waiting, "yield_processor", give_way)
        here.nic.poll_limit = 10 * PS_PER_MS
        rest(here, 20 * PS_PER_MS)
        assert here.looks[:-1] == [0] * 8, "eight looks, then it offers its processor"
        assert here.looks[-1] > 0
        assert here.nic.poll_failures == 1


def test_a_poll_stops_at_what_is_due_and_that_counts_neither_way() -> None:
    with endpoint() as here:
        polling(here)
        rest(here, 5 * PS_PER_US)
        assert here.looks == [0] * 5 + [0]
        assert here.nic.poll_failures == 0


def test_a_completion_that_another_thread_brings_ends_a_poll() -> None:
    with endpoint() as here:
        polling(here)
        here.datapath.cqs[CQ].published = 1
        assert rest(here) == 0
        assert here.looks == [0]


def test_a_process_that_waits_for_nothing_does_not_poll() -> None:
    with endpoint() as here:
        polling(here)
        here.patch.setattr(attendance, "_sleep", lambda *_: here.stop())
        attendance.serve(here.runtime.at)
        assert here.looks == []


def linger(here: Endpoint, time: int = PS_PER_MS) -> int:
    here.looks = []
    return waiting.linger(here.datapath, here.nic.planes, here.now + time)


def test_after_much_traffic_the_thread_of_the_endpoint_finds_the_next_train_without_sleep() -> None:
    with endpoint() as here:
        polling(here)
        here.readable = [0, 0, 1]
        assert linger(here) == 1
        assert here.looks == [0, 0, 0]


def test_it_looks_on_as_long_as_a_wait_may_poll_and_not_beyond_what_is_due() -> None:
    with endpoint() as here:
        polling(here)
        assert linger(here) == 0
        assert here.looks == [0] * (waiting.LINGER // LOOK)
        assert (linger(here, 5 * PS_PER_US), here.looks) == (0, [0] * 5)
        here.nic.poll_limit = 0
        assert (linger(here), here.looks) == (0, [])


def test_requests_end_its_looks() -> None:
    with endpoint() as here:
        polling(here)
        here.nic.posted += 1
        assert linger(here) == 0
        assert here.looks == [0]


def test_it_looks_on_after_much_traffic_only() -> None:
    much = QUIET + 1
    for handled, limit, lingers in ((QUIET, LIMIT, 0), (much, LIMIT, 1), (much, 0, 0)):
        with endpoint() as here:
            polling(here)
            here.nic.poll_limit = limit
            lingered: list[int] = []

            def send(*_: int, here: Endpoint = here, handled: int = handled) -> int:
                here.nic.handled = handled
                return 0

            def look_on(*_: object, here: Endpoint = here, lingered: list[int] = lingered) -> int:
                lingered.append(int(here.lease.sleeps_until))
                here.stop()
                return 0

            here.patch.setattr(attendance, "call_send_out", send)
            here.patch.setattr(waiting, "linger", look_on)
            here.patch.setattr(attendance, "_sleep", lambda *_, here=here: here.stop() or 0)
            attendance.serve(here.runtime.at)
            assert lingered == [0] * lingers, "awake for who posts"
