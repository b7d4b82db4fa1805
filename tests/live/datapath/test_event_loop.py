"""The event loop: who iterates, who sleeps, who is woken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from openmrc.core.jit import config
from openmrc.live.datapath import capture, event_loop, operations
from openmrc.live.datapath.event_loop import Mode
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S
from openmrc.verbs import Context
from tests.live.datapath.memory_kernel import Endpoint, endpoint
from tests.live.pair import SMALL, addresses


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


def test_the_endpoints_thread_ends_when_the_engine_has_lost_a_completion() -> None:
    with endpoint() as here:
        here.engine.endpoints[0].completions_lost = 1
        assert run(here, Mode.STAY) == event_loop.BROKEN


def test_an_old_clock_is_work_for_python() -> None:
    with endpoint() as here:
        here.now = event_loop.OLD + 1
        run(here, Mode.ITERATE)
        assert here.signals == [here.nic.python_wake_fd]


RAISED = rb"(?:Assertion|Attribute|Index|Key|Memory|Overflow|Value|ZeroDivision)Error"  # as pickles name them


@pytest.mark.skipif(config.DISABLE_JIT, reason="looks at compiled code")
@pytest.mark.parametrize(
    "entry", [event_loop.run, operations.change, operations.move], ids=lambda entry: entry.__name__
)
def test_no_compiled_entry_that_holds_a_mutex_can_raise(entry: Any) -> None:
    with Context(addresses(0, 239, 1, 4), SMALL):
        name = f"{entry.py_func.__module__.rpartition('.')[2]}.{entry.__name__}-*.nbc"
        codes = [file.read_bytes() for file in Path(entry.stats.cache_path).glob(name)]
    assert codes
    for code in codes:
        assert re.findall(RAISED, code) == []


@pytest.mark.parametrize(("field", "value"), [("waiting", 1), ("handled", 100), ("sleeps_until", 0)])
def test_nobody_waits_at_the_sockets_beside_another_or_while_traffic_is_high(field: str, value: int) -> None:
    with endpoint() as here:
        here.nic.sleeps_until = NEVER
        setattr(here.nic, field, value)
        assert run(here, Mode.WAIT, PS_PER_S) == event_loop.NOTHING


def test_a_wait_ends_with_a_completion_and_leaves_a_short_lease() -> None:
    with endpoint() as here:
        here.nic.sleeps_until = NEVER
        here.complete(1)
        assert run(here, Mode.WAIT, PS_PER_S) == event_loop.COMPLETED
        assert here.nic.leased_until == here.now + event_loop.LEASE
        assert here.nic.waiting == 0


def test_a_wait_ends_in_time() -> None:
    with endpoint() as here:
        here.nic.sleeps_until = NEVER
        assert run(here, Mode.WAIT, 0) == event_loop.NOTHING


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
