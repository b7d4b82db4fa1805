"""Requests in, completions out: the two queues between Python and the event loop."""

from __future__ import annotations

import numpy as np

from openmrc.engine.state.tables import NONE
from openmrc.live.datapath.loop import submission
from openmrc.live.objects.records import Records
from tests.live.datapath.memory_kernel import endpoint


def test_requests_are_counted_when_they_are_submitted_and_taken_by_an_iteration() -> None:
    with endpoint() as here:
        here.lease.sleeps_until = 1
        assert not here.submit_write(8)
        here.lease.sleeps_until = 0
        assert here.submit_write(8)
        assert (here.nic.posted, here.nic.taken, here.datapath.queues[0].posted) == (2, 0, 2)
        here.iterate()
        assert here.nic.taken == 2
        assert here.engine.qps[0].message_tail == 2


def test_the_thread_does_not_sleep_while_requests_wait() -> None:
    with endpoint() as here:
        here.submit_write(8)
        assert submission.try_sleep(here.datapath, 5) == 0
        here.iterate()
        assert submission.try_sleep(here.datapath, 5) == 5
        assert here.lease.sleeps_until == 5


def test_records_are_published_before_anyone_is_signalled() -> None:
    with endpoint() as here:
        seen: list[tuple[int, int]] = []

        def signal(descriptor: int, count: int) -> int:
            seen.append((descriptor, here.records.ready()))
            return 0

        here.patch.setattr(submission, "signal_eventfd", signal)
        here.records.arm(submission.ANY)
        here.records.wake_at_next()
        here.complete(1)
        submission.publish_completions(here.engine, here.datapath)
        assert seen == [(100, 1), (101, 1)]


def test_a_queue_is_signalled_once_for_each_arming() -> None:
    with endpoint() as here:
        here.datapath.cqs[0].channel = 102
        for armed in (0, submission.ANY, 0):
            if armed:
                here.records.arm(armed)
            here.complete(1)
            submission.publish_completions(here.engine, here.datapath)
        assert here.signals == [100, 102]
        assert here.records.events() == 1


def test_a_queue_armed_for_solicited_completions_waits_for_one_or_for_an_error() -> None:
    for solicited, status in ((1, 0), (0, 5)):
        with endpoint() as here:
            here.records.arm(submission.SOLICITED)
            here.complete(1)
            submission.publish_completions(here.engine, here.datapath)
            assert here.signals == []
            here.complete(2, solicited, status)
            submission.publish_completions(here.engine, here.datapath)
            assert here.signals == [100]


def test_a_queue_armed_for_any_completion_stays_so_when_solicited_ones_are_asked_for() -> None:
    """As a completion queue of InfiniBand (volume 1, 11.4.2.2)."""
    with endpoint() as here:
        here.records.arm(submission.ANY)
        here.records.arm(submission.SOLICITED)
        here.complete(1)
        submission.publish_completions(here.engine, here.datapath)
        assert here.signals == [100]


def test_a_row_that_had_a_queue_before_is_a_new_one() -> None:
    """All but its memory, and the channel that is set where the row is given away."""
    left = []
    for value in (0, 3):
        with endpoint() as here:
            row = np.asarray(here.datapath.cqs)[:1]
            names = row.dtype.names or ()
            for field in names:
                row[field] = value
            records = Records(here.runtime, 0, 64, lambda row, qpn: "")
            left.append({field: row[field].item() for field in set(names) - {"ring", "channel"}})
            assert row["ring"] == records.ring.ctypes.data
    assert left[0] == left[1]


def test_completions_keep_their_order_when_the_ring_wraps_around() -> None:
    with endpoint() as here:
        taken = []
        for number in range(200):
            here.complete(number)
            submission.publish_completions(here.engine, here.datapath)
            if number % 50 == 49:
                batch = here.records.read(64)
                here.records.remove(len(batch))
                taken += [each.wr_id for each in batch]
        assert taken == list(range(200))


def test_one_completion_too_many_is_an_overrun_and_the_engine_goes_on() -> None:
    with endpoint() as here:
        for number in range(66):
            here.complete(number)
            submission.publish_completions(here.engine, here.datapath)
        assert here.records.is_overrun()
        assert here.records.ready() == 64
        assert here.nic.overruns == 1
        node = here.engine.endpoints[0]
        assert node.completion_head == node.completion_tail


def test_completions_of_no_queue_are_dropped() -> None:
    with endpoint() as here:
        here.datapath.cq_of[:] = NONE
        here.complete(1)
        submission.publish_completions(here.engine, here.datapath)
        assert here.records.ready() == 0
