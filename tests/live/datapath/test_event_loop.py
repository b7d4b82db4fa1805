"""The event loop: who iterates, who sleeps, who is woken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.live_pair import SMALL, addresses
from openmrc.core.jit import config
from openmrc.engine.state.tables import NONE
from openmrc.live.datapath.libc import lock, unlock
from openmrc.live.datapath.loop import attendance, gathering, iteration, leases, operations, submission, waiting
from openmrc.live.datapath.loop.gathering import Gathering
from openmrc.live.datapath.loop.leases import Attendant
from openmrc.live.datapath.packets import capture, transmit
from openmrc.live.datapath.rows import LOOP_MUTEX, NEXT_MUTEX
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S, PS_PER_US
from openmrc.verbs import Context
from openmrc.wire.codes import Opcode
from tests.live.datapath.memory_kernel import Endpoint, endpoint

NO_DESCRIPTOR = -1
SACK, ACKNOWLEDGE, WRITE = Opcode.SACK, Opcode.ACKNOWLEDGE, Opcode.WRITE_ONLY


def sleeping(here: Endpoint) -> None:
    """Let the endpoint's thread be asleep, so that a user's thread may send."""
    here.lease.sleeps_until = NEVER
    here.kernel.now, here.kernel.sent = here.now, []


def post(here: Endpoint, count: int) -> int:
    """Post writes that `submit_write` has already counted."""
    here.nic.posted -= count
    here.kernel.now, here.kernel.sent = here.now, []
    return attendance.post(here.runtime.at, count)


def wait(here: Endpoint, time: int = PS_PER_MS) -> int:
    here.kernel.now = here.now
    return attendance.wait(here.runtime.at, 0, time, NO_DESCRIPTOR)


def take(here: Endpoint) -> None:
    """Take every completion, as a program does."""
    here.records.remove(here.records.ready())


def opcodes(here: Endpoint) -> list[int]:
    return [each.body[0] for each in here.kernel.sent]


def test_a_post_leaves_at_once_while_the_endpoints_thread_sleeps() -> None:
    with endpoint() as here:
        here.submit_write(1024)
        sleeping(here)
        assert post(here, 1) == attendance.DONE
        assert len(here.kernel.sent) == 1


def test_a_post_of_a_hundred_packets_leaves_without_waking_the_endpoints_thread_for_the_rest() -> None:
    with endpoint() as here:
        for _ in range(2):
            here.submit_write(50 * 1024)
        sleeping(here)
        post(here, 2)
        assert len(here.kernel.sent) == 100
        assert here.nic.wake_at > here.nic.now


def test_a_post_is_left_to_the_endpoints_thread_while_that_is_awake() -> None:
    with endpoint() as here:
        here.submit_write(1024)
        here.lease.sleeps_until = 0
        post(here, 1)
        assert here.kernel.sent == []
        assert here.nic.posted == 1


def test_a_sleeping_thread_is_woken_when_a_deadline_comes_sooner_than_it_thinks() -> None:
    with endpoint() as here:
        here.submit_write(1024)
        sleeping(here)
        post(here, 1)
        assert here.signals == [here.nic.wake_fd]


def test_the_endpoints_thread_ends_when_it_is_told_to_stop() -> None:
    with endpoint() as here:
        here.nic.stop = True
        assert attendance.serve(here.runtime.at) == attendance.STOPPED


def test_the_endpoints_thread_ends_when_the_engine_has_lost_a_completion() -> None:
    with endpoint() as here:
        here.engine.endpoints[0].completions_lost = 1
        assert attendance.serve(here.runtime.at) == attendance.BROKEN


def test_an_old_clock_is_work_for_python() -> None:
    with endpoint() as here:
        here.kernel.now = attendance.OLD + 1
        attendance.settle(here.runtime.at)
        assert here.signals == [here.nic.python_wake_fd]


RAISED = rb"(?:Assertion|Attribute|Index|Key|Memory|Overflow|Value|ZeroDivision)Error"  # as pickles name them
HOLDERS = (*attendance.ENTRIES, iteration.take_in, iteration.send_out, operations.change, operations.move)


@pytest.mark.skipif(config.DISABLE_JIT, reason="looks at compiled code")
@pytest.mark.parametrize("entry", HOLDERS, ids=lambda entry: entry.__name__)
def test_no_compiled_entry_that_holds_a_mutex_can_raise(entry: Any) -> None:
    with Context(addresses(0, 239, 1, 4), SMALL):
        name = f"{entry.py_func.__module__.rpartition('.')[2]}.{entry.__name__}-*.nbc"
        codes = [file.read_bytes() for file in Path(entry.stats.cache_path).glob(name)]
    assert codes
    for code in codes:
        assert re.findall(RAISED, code) == []


@pytest.mark.parametrize(("field", "value"), [("attendant", Attendant.WAITER), ("sleeps_until", 0)])
def test_nobody_waits_at_the_sockets_beside_another_thread(field: str, value: int) -> None:
    with endpoint() as here:
        sleeping(here)
        setattr(here.lease, field, value)
        assert wait(here) == attendance.BUSY


@pytest.mark.parametrize(
    ("handled", "more", "attendant"),
    [
        (leases.QUIET, 1, Attendant.NOBODY),
        (leases.QUIET + 1, 0, Attendant.NOBODY),
        (leases.QUIET + 1, 1, Attendant.THREAD),
    ],
)
def test_a_wait_stays_at_the_sockets_in_high_traffic_and_leaves_them_to_the_endpoints_thread_if_they_have_more(
    handled: int, more: int, attendant: Attendant
) -> None:
    with endpoint() as here:
        sleeping(here)
        sent: list[int] = []

        def send(*_: int) -> int:
            sent.append(1)
            if len(sent) == 3:
                here.complete(1)  # published in the next iteration
            is_last = len(sent) == 4
            here.nic.handled, here.readable = (handled, [more]) if is_last else (100, [1])
            return 0

        here.patch.setattr(attendance, "call_send_out", send)
        assert wait(here) == attendance.COMPLETED
        assert len(sent) == 4
        assert here.lease.attendant == attendant
        assert (here.signals.count(here.nic.wake_fd) > 0) == (attendant == Attendant.THREAD)


def test_a_wait_ends_with_a_completion_and_leaves_a_short_lease() -> None:
    with endpoint() as here:
        sleeping(here)
        here.complete(1)
        assert wait(here) == attendance.COMPLETED
        assert here.lease.until == here.now + leases.LEASE
        assert here.lease.attendant == Attendant.NOBODY


def test_a_wait_ends_in_time() -> None:
    with endpoint() as here:
        sleeping(here)
        began = here.now
        assert wait(here, PS_PER_MS) == attendance.LATE
        assert began + PS_PER_MS <= here.now <= began + 2 * PS_PER_MS


def test_a_wait_ends_when_its_own_descriptor_is_readable() -> None:
    with endpoint() as here:
        sleeping(here)
        here.readable = [1 << 2]  # behind the two planes
        assert wait(here) == attendance.READABLE
        assert here.lease.attendant == Attendant.NOBODY


def test_a_wait_that_brings_nothing_answers_what_has_arrived() -> None:
    with endpoint() as here:
        sleeping(here)
        here.stage_arrival(0)
        here.datapath.cq_of[:] = NONE  # another program's completion
        here.readable = [1]
        assert wait(here, 50 * PS_PER_US) == attendance.LATE
        assert [each for each in opcodes(here) if each != Opcode.ENDPOINT_REQUEST] == [SACK, ACKNOWLEDGE]


def round_trip(here: Endpoint, number: int, pause: int = 0) -> list[list[int]]:
    """Wait for the peer's write, do something for `pause` (ps), write back, wait again; return what left at each."""
    sleeping(here)
    here.stage_arrival(number)
    here.readable = [1]
    assert wait(here) == attendance.COMPLETED
    take(here)
    left = [opcodes(here)]
    here.now += pause
    here.submit_write(8)
    post(here, 1)
    return [*left, opcodes(here)]


def test_a_program_that_comes_back_at_once_has_its_data_sent_before_the_answers() -> None:
    with endpoint() as here:
        first, second = round_trip(here, 0)
        assert (first, second) == ([SACK, ACKNOWLEDGE], [WRITE]), "nothing is known about it yet"
        first, second = round_trip(here, 1)
        assert (first, second) == ([], [WRITE, SACK, ACKNOWLEDGE])


def test_a_program_that_takes_its_time_has_the_answers_sent_before_it_gets_its_completion() -> None:
    with endpoint() as here:
        round_trip(here, 0)
        round_trip(here, 1, pause=2 * leases.PROMPT)
        first, second = round_trip(here, 2)
        assert (first, second) == ([SACK, ACKNOWLEDGE], [WRITE])


def test_a_round_trip_takes_two_system_calls_to_send() -> None:
    with endpoint() as here:
        for number in range(8):
            before = here.nic.sendings
            round_trip(here, number)
            assert here.nic.sendings - before <= 2


def test_the_endpoints_thread_sends_the_answers_that_a_program_left_behind() -> None:
    with endpoint() as here:
        round_trip(here, 0)
        sleeping(here)
        here.stage_arrival(1)
        here.readable = [1]
        wait(here)
        assert here.kernel.sent == []
        here.now += leases.LEASE
        here.kernel.now = here.now
        here.patch.setattr(attendance, "_sleep", lambda *_: here.stop())
        attendance.serve(here.runtime.at)
        assert opcodes(here)[:2] == [SACK, ACKNOWLEDGE]
        assert not here.lease.prompt, "the next answers do not wait"


def test_a_posted_receive_does_not_send_the_answers_that_wait_for_data() -> None:
    with endpoint() as here:
        round_trip(here, 0)
        sleeping(here)
        here.stage_arrival(1)
        here.readable = [1]
        wait(here)
        row = here.datapath.commands[here.nic.posted & 255]
        row.is_receive, row.qp, row.wr_id = 1, 0, 9
        attendance.post(here.runtime.at, 1)
        assert here.kernel.sent == []
        assert here.engine.qps[0].receive_tail == 3


def test_a_thread_that_spins_is_given_a_completion_first_and_answers_when_it_finds_none() -> None:
    with endpoint() as here:
        round_trip(here, 0)
        sleeping(here)
        here.stage_arrival(1)
        here.readable = [1]
        assert attendance.poll(here.runtime.at, 0) == 1
        assert here.kernel.sent == []
        take(here)
        assert attendance.poll(here.runtime.at, 0) == 0
        assert opcodes(here) == [SACK, ACKNOWLEDGE]
        assert here.lease.until > here.nic.now, "the endpoint's thread stays out of its way"


@pytest.mark.parametrize("sleeps_until", [0, NEVER])
def test_a_thread_that_spins_does_all_work_whether_the_endpoints_thread_is_awake_or_not(sleeps_until: int) -> None:
    with endpoint() as here:
        here.submit_write(1024)
        here.lease.sleeps_until, here.kernel.now, here.kernel.sent = sleeps_until, here.now, []
        attendance.poll(here.runtime.at, 0)
        assert len(here.kernel.sent) == 1
        assert here.lease.attendant == Attendant.POLLER


def leave_alone(here: Endpoint, arrivals: int) -> None:
    """Poll once, never again; let the endpoint's thread iterate when the lease is over."""
    sleeping(here)
    attendance.poll(here.runtime.at, 0)
    for number in range(arrivals):
        here.stage_arrival(number)
    here.now = here.kernel.now = here.lease.until
    here.patch.setattr(attendance, "_sleep", lambda *_: here.stop())
    attendance.serve(here.runtime.at)


def test_a_lease_of_polls_that_ran_out_while_something_arrived_makes_the_next_ones_short() -> None:
    with endpoint() as here:
        assert here.lease.poll_lease == leases.LEASE
        leave_alone(here, 1)
        assert here.lease.poll_lease == leases.SHORT_LEASE
        assert here.records.ready() == 1, "the endpoint's thread looks at the sockets at once"
        assert here.lease.attendant == Attendant.THREAD


def test_a_lease_of_polls_that_ran_out_unnoticed_was_not_too_long() -> None:
    with endpoint() as here:
        leave_alone(here, 0)
        assert here.lease.poll_lease == leases.LEASE
        assert here.lease.attendant == Attendant.THREAD


def test_each_return_in_time_makes_the_leases_of_polls_longer() -> None:
    with endpoint() as here:
        here.lease.poll_lease = leases.SHORT_LEASE
        for number in range(3):
            sleeping(here)
            here.stage_arrival(number)
            here.readable = [1]
            assert attendance.poll(here.runtime.at, 0) == 1
            take(here)
            attendance.poll(here.runtime.at, 0)
        assert here.lease.poll_lease == leases.SHORT_LEASE + 3 * leases.LEASE_STEP


def test_a_poll_that_finds_arrivals_in_time_makes_the_leases_longer_even_if_it_completes_nothing() -> None:
    with endpoint() as here:
        here.lease.poll_lease = leases.SHORT_LEASE
        sleeping(here)
        here.records.remove(here.records.ready())
        attendance.poll(here.runtime.at, 0)
        here.stage_arrival(0)
        here.datapath.cq_of[:] = NONE  # as a plain write of the peer: no completion here
        here.readable = [1]
        assert attendance.poll(here.runtime.at, 0) == 0
        assert here.lease.poll_lease == leases.SHORT_LEASE + leases.LEASE_STEP


def test_arrivals_that_a_poll_finds_after_a_post_say_nothing_of_its_lease() -> None:
    with endpoint() as here:
        here.lease.poll_lease = leases.SHORT_LEASE
        sleeping(here)
        here.submit_write(8)
        attendance.poll(here.runtime.at, 0)
        here.stage_arrival(0)
        here.datapath.cq_of[:] = NONE
        here.readable = [1]
        attendance.poll(here.runtime.at, 0)
        assert here.lease.poll_lease == leases.SHORT_LEASE


def make_sending_slow(here: Endpoint) -> None:
    """Let each call that sends take longer than a short lease."""
    send = here.kernel.send_messages

    def send_slowly(*arguments: int) -> int:
        here.kernel.now += 30 * PS_PER_US
        return send(*arguments)

    here.patch.setattr(transmit, "send_messages", send_slowly)


def test_a_lease_begins_when_a_poll_ends() -> None:
    with endpoint() as here:
        sleeping(here)
        here.stage_arrival(0)
        here.datapath.cq_of[:] = NONE
        here.readable = [1]
        make_sending_slow(here)
        attendance.poll(here.runtime.at, 0)
        assert len(here.kernel.sent) > 0
        assert here.lease.until == here.kernel.now + here.lease.poll_lease


@pytest.mark.parametrize("mutex", [LOOP_MUTEX, NEXT_MUTEX])
def test_a_poll_does_not_wait_for_a_thread_that_iterates_or_for_one_that_wants_to(mutex: int) -> None:
    with endpoint() as here:
        sleeping(here)
        here.submit_write(8)
        here.complete(1)
        submission.publish_completions(here.engine, here.datapath)
        lock(here.nic.mutex_at + mutex)
        assert attendance.poll(here.runtime.at, 0) == 1, "what is there can be taken"
        assert here.kernel.sent == []
        unlock(here.nic.mutex_at + mutex)
        take(here)
        attendance.poll(here.runtime.at, 0)
        assert len(here.kernel.sent) == 1


def test_who_polls_while_the_endpoints_thread_iterates_has_the_sockets_next() -> None:
    """Else it gets them only when there is nothing to do, and both send by turns."""
    with endpoint() as here:
        here.kernel.now = here.now
        lock(here.nic.mutex_at + LOOP_MUTEX)
        attendance.poll(here.runtime.at, 0)
        unlock(here.nic.mutex_at + LOOP_MUTEX)
        assert here.lease.attendant == Attendant.THREAD
        here.patch.setattr(attendance, "_sleep", lambda *_: here.stop())
        attendance.serve(here.runtime.at)
        assert here.lease.attendant == Attendant.POLLER
        assert here.lease.until == here.kernel.now + here.lease.poll_lease
        assert not here.lease.asked


@pytest.mark.parametrize("has_other", ["polls", "sleeps"])
def test_a_thread_that_polled_and_then_has_the_loop_or_sleeps_asks_for_nothing(has_other: str) -> None:
    with endpoint() as here:
        here.lease.asked = True
        if has_other == "polls":
            attendance.poll(here.runtime.at, 0)
        else:
            attendance.arm(here.runtime.at, 0, submission.ANY)
        assert not here.lease.asked


def test_a_lease_of_polls_begins_when_a_poll_that_sends_much_ends() -> None:
    with endpoint() as here:
        sleeping(here)
        here.lease.poll_lease = leases.SHORT_LEASE
        here.submit_write(8 * 1024)
        here.kernel.sent = []
        make_sending_slow(here)
        attendance.poll(here.runtime.at, 0)
        assert len(here.kernel.sent) == 8
        assert here.lease.until == here.kernel.now + leases.SHORT_LEASE


def polling(here: Endpoint) -> None:
    """Poll, while the endpoint's thread sleeps until the lease is over, in a program that has posted in bursts."""
    sleeping(here)
    attendance.poll(here.runtime.at, 0)
    here.lease.sleeps_until = here.lease.until
    if here.bursts.gathering == Gathering.UNTRIED:
        here.bursts.gathering = Gathering.TRUSTED


def burst(here: Endpoint, count: int) -> None:
    """Post writes of 8 bytes, each by a call of its own."""
    here.kernel.sent = []
    for _ in range(count):
        here.submit_write(8)
        here.nic.posted -= 1
        here.bursts.posts -= 1
        attendance.post(here.runtime.at, 1)


def test_the_first_post_after_a_poll_leaves_at_once_and_the_next_ones_together_with_the_next_poll() -> None:
    with endpoint() as here:
        polling(here)
        burst(here, 4)
        assert len(here.kernel.sent) == 1
        attendance.poll(here.runtime.at, 0)
        assert len(here.kernel.sent) == 4
        burst(here, 1)
        assert len(here.kernel.sent) == 1, "a program that posts once and polls does not wait"


def test_posts_of_a_burst_leave_when_there_is_a_train_of_them() -> None:
    with endpoint() as here:
        here.patch.setattr(gathering, "GATHERED", 5)
        polling(here)
        burst(here, 5)
        assert len(here.kernel.sent) == 1
        burst(here, 1)
        assert len(here.kernel.sent) == 5


def test_who_has_much_open_gathers_a_quarter_of_it_from_the_first_post_on() -> None:
    with endpoint() as here:
        here.patch.setattr(gathering, "GATHERED", 2)
        polling(here)
        here.datapath.queues[0].posted += 12  # each post counts twice here
        burst(here, 4)
        assert here.kernel.sent == [], "other trains are on the way"
        burst(here, 1)
        assert len(here.kernel.sent) == 5


def test_a_long_write_leaves_at_once_however_much_is_open() -> None:
    with endpoint() as here:
        here.patch.setattr(gathering, "GATHERED", 2)
        here.patch.setattr(gathering, "SMALL", 7)
        polling(here)
        here.datapath.queues[0].posted += 12
        burst(here, 1)
        assert len(here.kernel.sent) == 1


def test_a_thread_that_gathers_long_trains_keeps_the_sockets() -> None:
    with endpoint() as here:
        here.patch.setattr(gathering, "GATHERED", 2)
        here.lease.poll_lease = leases.SHORT_LEASE
        polling(here)
        polled_at = here.nic.now
        assert here.lease.until < polled_at + gathering.FORGOTTEN
        here.datapath.queues[0].posted += 12
        burst(here, 2)
        assert here.lease.until == here.nic.now + gathering.FORGOTTEN


def test_a_thread_that_gathers_little_has_no_longer_lease_for_it() -> None:
    with endpoint() as here:
        here.lease.poll_lease = leases.SHORT_LEASE
        polling(here)
        burst(here, 2)
        assert here.lease.until <= here.nic.now + 2 * leases.SHORT_LEASE


def test_a_poll_that_finds_a_completion_sends_what_was_gathered() -> None:
    with endpoint() as here:
        polling(here)
        burst(here, 3)
        here.complete(1)
        submission.publish_completions(here.engine, here.datapath)
        assert attendance.poll(here.runtime.at, 0) == 1
        assert len(here.kernel.sent) == 3


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        ("lease", "sleeps_until", NEVER),
        ("lease", "attendant", Attendant.WAITER),
        ("bursts", "gathering", Gathering.PAUSED),
    ],
)
def test_nothing_is_gathered_unless_the_program_polls_and_somebody_looks_soon(row: str, field: str, value: int) -> None:
    with endpoint() as here:
        polling(here)
        setattr(getattr(here, row), field, value)
        burst(here, 4)
        assert len(here.kernel.sent) == 4


def test_gathering_begins_with_the_first_burst_that_a_poll_ends() -> None:
    with endpoint() as here:
        assert here.bursts.gathering == Gathering.UNTRIED
        sleeping(here)
        burst(here, 2)
        assert len(here.kernel.sent) == 2
        attendance.poll(here.runtime.at, 0)
        assert here.bursts.gathering == Gathering.TRUSTED
        assert gathering.has_bursts(here.datapath)
        here.nic.now += gathering.BURSTS_END
        assert not gathering.has_bursts(here.datapath), "an idle endpoint sleeps"


def test_a_program_that_posts_and_does_not_poll_is_not_gathered_for_again_so_soon() -> None:
    with endpoint() as here:
        polling(here)
        burst(here, 3)
        here.now = here.kernel.now = here.lease.until
        here.patch.setattr(attendance, "_sleep", lambda *_: here.stop())
        attendance.serve(here.runtime.at)
        assert opcodes(here).count(WRITE) >= 3, "the endpoint's thread sends what was forgotten"
        assert (here.bursts.gathering, here.bursts.pause) == (Gathering.PAUSED, gathering.LEAST_PAUSE)
        for _ in range(gathering.LEAST_PAUSE):
            here.bursts.posts = 2
            attendance.poll(here.runtime.at, 0)
            assert here.bursts.gathering != Gathering.TRUSTED
        here.bursts.posts = 2
        attendance.poll(here.runtime.at, 0)
        assert here.bursts.gathering == Gathering.TRUSTED


def test_who_forgets_what_it_posted_again_and_again_is_gathered_for_ever_more_rarely() -> None:
    with endpoint() as here:

        def polls_after(bursts: int) -> None:
            for _ in range(bursts):
                here.bursts.posts = 2
                gathering.end_burst(here.datapath)

        pauses = list[int]()
        for _ in range(9):
            polls_after(pauses[-1] + 1 if pauses else 1)
            assert here.bursts.gathering == Gathering.TRUSTED
            gathering.note_forgotten(here.datapath)
            pauses.append(int(here.bursts.pause))
        assert pauses == [4, 8, 16, 32, 64, 128, 256, 256, 256]
        polls_after(2 * gathering.MOST_PAUSE)
        gathering.note_forgotten(here.datapath)
        assert (here.bursts.gathering, here.bursts.pause) == (Gathering.PAUSED, gathering.LEAST_PAUSE), (
            "one that has polled since then is trusted again"
        )


def test_a_gathering_thread_that_is_late_by_little_is_still_trusted() -> None:
    with endpoint() as here:
        polling(here)
        burst(here, 3)
        here.lease.until = here.now = here.kernel.now = here.now + leases.SHORT_LEASE
        here.patch.setattr(attendance, "_sleep", lambda *_: here.stop())
        attendance.serve(here.runtime.at)
        assert here.bursts.gathering == Gathering.TRUSTED


def test_the_endpoints_thread_sleeps_on_without_the_mutex_while_leases_are_renewed() -> None:
    with endpoint() as here:
        polling(here)
        looked: list[int] = []

        def sleep(_datapath: Any, _row: int, _first: int, _count: int, due: int) -> int:
            looked.append(due)
            here.now = here.kernel.now = due
            if len(looked) < 3:
                here.lease.until = here.now + leases.SHORT_LEASE
            return 0

        here.patch.setattr(waiting, "sleep", sleep)
        assert attendance._sleep(here.datapath, here.lease.until, True) == 0
        assert len(looked) == 3


def test_the_endpoints_thread_attends_the_sockets_though_a_lease_begins_before_it_sleeps() -> None:
    """It decided to sleep until a deadline; if it left the sockets alone until then, nobody would look after them."""
    with endpoint() as here:
        looked: list[int] = []

        def sleep(_datapath: Any, _row: int, first: int, _count: int, _due: int) -> int:
            looked.append(first)
            return here.stop()

        def release(_datapath: Any) -> None:
            here.lease.attendant, here.lease.until = Attendant.POLLER, here.now + leases.SHORT_LEASE

        here.kernel.now = here.now
        here.patch.setattr(waiting, "sleep", sleep)
        here.patch.setattr(attendance, "release", release)
        attendance.serve(here.runtime.at)
        assert looked == [0]


def test_a_program_that_arms_its_queue_leaves_the_sockets_to_the_endpoints_thread() -> None:
    with endpoint() as here:
        sleeping(here)
        attendance.poll(here.runtime.at, 0)
        here.signals.clear()
        assert attendance.arm(here.runtime.at, 0, submission.ANY) == 0
        assert here.datapath.cqs[0].armed == submission.ANY
        assert here.lease.until == 0
        assert here.signals == [here.nic.wake_fd]


def test_what_a_program_gathered_is_sent_when_it_arms_its_queue() -> None:
    with endpoint() as here:
        polling(here)
        burst(here, 3)
        here.lease.attendant = Attendant.THREAD  # its lease is over
        here.signals.clear()
        attendance.arm(here.runtime.at, 0, submission.ANY)
        assert here.signals == [here.nic.wake_fd]


def test_what_is_absorbed_is_answered_by_a_later_call() -> None:
    with endpoint() as here:
        sleeping(here)
        here.stage_arrival(0)
        here.readable = [1]
        assert attendance.absorb(here.runtime.at) == 1
        assert here.records.ready() == 1
        assert here.kernel.sent == []
        attendance.settle(here.runtime.at)
        assert opcodes(here) == [SACK, ACKNOWLEDGE]


def test_a_lost_write_is_sent_again_by_a_thread_that_looks() -> None:
    with endpoint() as here:
        here.submit_write(1024)
        here.iterate()
        here.now += 10 * PS_PER_S
        here.iterate()
        assert here.kernel.sent == []  # a user's thread leaves deadlines alone
        here.iterate(looks=True)
        assert here.kernel.sent
        assert here.engine.qps[0].retransmitted == 1


def test_the_next_wake_up_is_the_next_deadline() -> None:
    with endpoint() as here:
        here.submit_write(1024)
        here.iterate()
        assert here.now < here.nic.wake_at < here.now + 100 * PS_PER_MS


def test_events_are_handed_over_in_order_and_python_is_called_once() -> None:
    with endpoint() as here:
        node = here.engine.endpoints[0]
        for number in range(3):
            event = here.engine.events[node.event_base + (node.event_tail & node.event_mask)]
            event.kind, event.qp, event.port = 1, 0, number
            node.event_tail += 1
        for _ in range(2):
            attendance.settle(here.runtime.at)
        assert here.signals == [here.nic.python_wake_fd]
        assert attendance.take_events(here.runtime.at) == 3
        assert [here.datapath.event_records[index].port for index in range(3)] == [0, 1, 2]
        assert not here.nic.called


def test_a_full_capture_ring_stops_the_loop_until_the_file_has_caught_up() -> None:
    with endpoint(capturing=True) as here:
        here.submit_write(1024)
        here.datapath.capture[0].tail = capture.RING
        here.iterate()
        assert here.kernel.sent == []
        assert here.nic.taken == 0
        here.datapath.capture[0].head = capture.RING
        here.iterate()
        assert len(here.kernel.sent) == 1


def test_a_capture_file_that_is_stuck_is_not_waited_for() -> None:
    with endpoint(capturing=True) as here:
        here.datapath.capture[0].tail = capture.RING
        here.iterate()
        here.now += 2 * capture.PATIENCE
        here.submit_write(1024)
        here.iterate()
        assert len(here.kernel.sent) == 1
        assert here.datapath.capture[0].lost == 1
