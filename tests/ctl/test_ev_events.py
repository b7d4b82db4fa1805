"""EV events: what is dropped is counted exactly, and a reader hears of failures of a real endpoint."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.ctl import endpoint_ops
from openmrc.ctl.ev_events import FORGOTTEN_SECONDS, MOST_QUEUES, EvEventQueue, EvEventQueues, EvStateEvent
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvEvent as EngineEvent
from openmrc.errors import InvalidArgumentError, NotFoundError, TooBigError
from tests.ctl.endpoints import connected


def event(number: int) -> EvStateEvent:
    return EvStateEvent(profile=0, ev="00", port=1, state="GOOD", value=number)


@given(st.integers(1, 5), st.lists(st.one_of(st.just("push"), st.just("lose"), st.integers(1, 4)), max_size=60))
def test_drop_counts_and_delivered_events_add_up_to_what_happened(capacity: int, steps: list[str | int]) -> None:
    queue, happened, accounted = EvEventQueue(capacity), 0, 0
    for step in [*steps, "push", capacity]:
        if step == "push":
            queue.push(event(happened))
            happened += 1
        elif step == "lose":
            queue.lose(1)
            happened += 1
        else:
            assert isinstance(step, int)
            for each in queue.take(step):
                accounted += each.drop_count + 1
    assert happened == accounted


def test_a_full_queue_drops_its_oldest() -> None:
    queue = EvEventQueue(2)
    for number in range(5):
        queue.push(event(number))
    assert [(each.value, each.drop_count) for each in queue.take(9)] == [(3, 3), (4, 0)]


def test_there_are_few_queues_and_forgotten_ones_go() -> None:
    queues = EvEventQueues()
    numbers = [queues.create(1) for _ in range(MOST_QUEUES)]
    with pytest.raises(TooBigError):
        queues.create(1)
    queues._queues[numbers[0]].read_at = time.monotonic() - FORGOTTEN_SECONDS - 1
    queues.create(1)
    with pytest.raises(NotFoundError):
        queues.poll(numbers[0], 1, 0)
    with pytest.raises(InvalidArgumentError):
        queues.create(0)


def test_a_reader_that_waits_is_woken_by_an_event_and_by_the_end() -> None:
    queues = EvEventQueues()
    number = queues.create(4)
    threading.Timer(0.05, queues.push, [event(1)]).start()
    assert len(queues.poll(number, 4, 5.0)) == 1
    threading.Timer(0.05, queues.close).start()
    began = time.monotonic()
    assert queues.poll(number, 4, 5.0) == []
    assert time.monotonic() - began < 2


def test_a_reader_hears_of_an_ev_that_fails(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        queue = client.call(endpoint_ops.create_events).queue
        runtime, row = pair.contexts[0].nic.runtime, pair.ends[0].qp.row
        bad = pair.ends[0].qp.ev_states()[0]
        with runtime.locked() as now:
            ev_states.transition(
                runtime.engine, now, ev_states.find(runtime.engine, row, bad.ev), EngineEvent.SACK_ALWAYS_SKIP
            )
        found, *_ = client.call_within(5.0, endpoint_ops.poll_events, queue=queue, wait=5.0).events
        assert (found.port, found.value, found.state, found.profile) == (1, bad.ev, "ASSUMED_BAD", 0)
        assert found.qpn == pair.ends[0].qp.qpn
        client.call(endpoint_ops.destroy_events, queue=queue)
        with pytest.raises(NotFoundError):
            client.call(endpoint_ops.poll_events, queue=queue)
