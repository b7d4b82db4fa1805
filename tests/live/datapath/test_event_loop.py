"""The event loop: who iterates, who sleeps, who is woken."""

from __future__ import annotations

import pytest

from openmrc.live.datapath import capture, event_loop
from openmrc.live.datapath.event_loop import Mode
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S
from tests.live.datapath.memory_kernel import Endpoint, endpoint


def run(here: Endpoint, mode: Mode, what: int = 0) -> int:
    here.kernel.now, here.kernel.sent = here.now, []
    return int(event_loop.run(here.runtime.at, int(mode), what, 0))


def test_a_post_leaves_at_once_while_the_endpoints_thread_sleeps() -> None:
    with endpoint() as here:
        here.submit_write(1024)
        here.nic.posted -= 1
        here.nic.sleeps_until = NEVER
        assert run(here, Mode.POST, 1) == event_loop.DONE
        assert len(here.kernel.sent) == 1


def test_a_post_of_a_hundred_packets_leaves_without_waking_the_endpoints_thread_for_the_rest() -> None:
    with endpoint() as here:
        for _ in range(2):
            here.submit_write(50 * 1024)
        here.nic.posted -= 2
        here.nic.sleeps_until = NEVER
        run(here, Mode.POST, 2)
        assert len(here.kernel.sent) == 100
        assert here.nic.wake_at > here.nic.now


def test_a_post_is_left_to_the_endpoints_thread_while_that_is_awake() -> None:
    with endpoint() as here:
        here.submit_write(1024)
        here.nic.posted -= 1
        here.nic.sleeps_until = 0
        run(here, Mode.POST, 1)
        assert here.kernel.sent == []
        assert here.nic.posted == 1


def test_a_sleeping_thread_is_woken_when_a_deadline_comes_sooner_than_it_thinks() -> None:
    with endpoint() as here:
        here.submit_write(1024)
        here.nic.posted -= 1
        here.nic.sleeps_until = NEVER
        run(here, Mode.POST, 1)
        assert here.signals == [here.nic.wake_fd]


def test_the_endpoints_thread_ends_when_it_is_told_to_stop() -> None:
    with endpoint() as here:
        here.nic.stop = 1
        assert run(here, Mode.STAY) == event_loop.STOPPED


def test_the_endpoints_thread_ends_before_its_clock_does() -> None:
    with endpoint() as here:
        here.now = event_loop.LIFETIME + 1
        assert run(here, Mode.STAY) == event_loop.EXPIRED


@pytest.mark.parametrize(("field", "value"), [("waiting", 1), ("handled", 100), ("sleeps_until", 0)])
def test_nobody_waits_at_the_sockets_beside_another_or_while_traffic_is_high(field: str, value: int) -> None:
    with endpoint() as here:
        here.nic.sleeps_until = NEVER
        setattr(here.nic, field, value)
        assert run(here, Mode.WAIT, here.now + PS_PER_S) == event_loop.NOTHING


def test_a_wait_ends_with_a_completion_and_leaves_a_short_lease() -> None:
    with endpoint() as here:
        here.nic.sleeps_until = NEVER
        here.complete(1)
        assert run(here, Mode.WAIT, here.now + PS_PER_S) == event_loop.COMPLETED
        assert here.nic.leased_until == here.now + event_loop.LEASE
        assert here.nic.waiting == 0


def test_a_wait_ends_in_time() -> None:
    with endpoint() as here:
        here.nic.sleeps_until = NEVER
        assert run(here, Mode.WAIT, here.now) == event_loop.NOTHING


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
            run(here, Mode.ITERATE)
        assert here.signals == [here.nic.python_wake_fd]
        assert event_loop.take_events(here.runtime.at) == 3
        assert [here.datapath.event_records[index].port for index in range(3)] == [0, 1, 2]
        assert here.nic.called == 0


def test_a_full_capture_ring_stops_the_loop_until_the_file_has_caught_up() -> None:
    with endpoint(capturing=True) as here:
        here.submit_write(1024)
        here.nic.capture_tail = capture.RING
        here.iterate()
        assert here.kernel.sent == []
        assert here.nic.taken == 0
        here.nic.capture_head = capture.RING
        here.iterate()
        assert len(here.kernel.sent) == 1


def test_a_capture_file_that_is_stuck_is_not_waited_for() -> None:
    with endpoint(capturing=True) as here:
        here.nic.capture_tail = capture.RING
        here.iterate()
        here.now += 2 * capture.PATIENCE
        here.submit_write(1024)
        here.iterate()
        assert len(here.kernel.sent) == 1
        assert here.nic.capture_lost == 1
