"""Timers: each kind on its own, and bounds of the queue pair and the endpoint that are never late."""

from __future__ import annotations

import pytest

from openmrc.engine import endpoint as doors
from openmrc.engine.state import timers
from openmrc.engine.state.tables import Deadline
from openmrc.units import NEVER
from tests.engine.scripted_peer import Endpoint, us


@pytest.mark.parametrize("kind", Deadline)
def test_arming_one_timer_brings_both_bounds_forward_and_leaves_the_others(kind: Deadline) -> None:
    endpoint = Endpoint()
    timers.arm(endpoint.engine, 0, kind, us(7))
    assert timers.due(endpoint.engine, 0, kind) == timers.earliest(endpoint.engine, 0) == us(7)
    assert all(timers.due(endpoint.engine, 0, other) == NEVER for other in Deadline if other != kind)
    assert endpoint.qp().deadline == doors.next_deadline(endpoint.engine, 0) == us(7)


def test_a_timer_that_is_set_by_a_time_keeps_an_earlier_one() -> None:
    endpoint = Endpoint()
    timers.arm(endpoint.engine, 0, Deadline.PROBE, us(5))
    timers.arm_by(endpoint.engine, 0, Deadline.PROBE, us(9))
    assert timers.due(endpoint.engine, 0, Deadline.PROBE) == us(5)
    timers.arm_by(endpoint.engine, 0, Deadline.PROBE, us(3))
    assert timers.due(endpoint.engine, 0, Deadline.PROBE) == us(3)


def test_a_disarmed_timer_is_not_served_and_the_next_bound_is_that_of_the_others() -> None:
    endpoint = Endpoint()
    timers.arm(endpoint.engine, 0, Deadline.REVERSE, us(4))
    timers.arm(endpoint.engine, 0, Deadline.PTO, us(6))
    timers.disarm(endpoint.engine, 0, Deadline.REVERSE)
    doors.expire(endpoint.engine, us(4), 0)
    assert doors.next_deadline(endpoint.engine, 0) == us(6)
    doors.expire(endpoint.engine, us(6), 0)
    assert doors.next_deadline(endpoint.engine, 0) == NEVER, "the tail timer of an idle queue pair is not armed again"
