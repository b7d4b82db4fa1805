"""What a queue pair leaves behind, and what it takes while nothing is sent."""

from __future__ import annotations

import numpy as np

from openmrc.engine.connection import lifecycle
from openmrc.engine.endpoint import next_completion
from openmrc.engine.state.states import QpEvent
from openmrc.engine.state.tables import NONE, SentState
from tests.engine.scripted_peer import MTU, Endpoint, ack, data


def test_a_connection_without_traffic_writes_to_none_of_its_rings() -> None:
    endpoint = Endpoint()
    lifecycle.move(endpoint.engine, endpoint.now, 0, QpEvent.TO_RESET)
    for rows in (endpoint.engine.sent, endpoint.engine.tracker, endpoint.engine.pending_immediates):
        np.asarray(rows).flags.writeable = False
        assert not np.asarray(rows).flags.writeable
    endpoint.connect(0)


def test_a_new_connection_finds_nothing_of_the_one_before() -> None:
    endpoint = Endpoint()
    endpoint.write(3 * MTU)
    endpoint.receives(data(5))
    endpoint.all_sent()
    lifecycle.move(endpoint.engine, endpoint.now, 0, QpEvent.TO_RESET)
    endpoint.connect(0)
    assert {row.state for row in endpoint.engine.sent} == {SentState.FREE}
    assert not any(row.arrived or row.last or row.immediate for row in endpoint.engine.tracker)


def test_completions_that_are_taken_at_once_share_one_row() -> None:
    endpoint = Endpoint()
    rows = []
    for number in range(1, 4):
        endpoint.write(MTU, wr_id=number)
        endpoint.all_sent()
        endpoint.receives(ack(number))
        rows.append(next_completion(endpoint.engine, 0))
        assert endpoint.engine.completions[rows[-1]].wr_id == number
        assert next_completion(endpoint.engine, 0) == NONE
    assert len(set(rows)) == 1
