"""What a queue pair leaves behind, and what it takes while nothing is sent."""

from __future__ import annotations

import random
from itertools import groupby

import numpy as np
import pytest

from openmrc.engine import lifecycle
from openmrc.engine.endpoint import next_completion
from openmrc.engine.state.machines import QpEvent
from openmrc.engine.state.tables import NONE, Cause, SentState, WcStatus
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


@pytest.mark.parametrize("seed", range(20))
def test_the_oldest_request_on_a_region_that_ends_says_so_and_all_others_are_flushed(seed: int) -> None:
    """Requests of one to three writes, some without a success to report, against a list that is searched."""
    draw = random.Random(seed)
    endpoint = Endpoint()
    posted = [(number, draw.choice((7, 8, 9))) for number in range(8) for _ in range(draw.randint(1, 3))]
    last = {number: place for place, (number, _) in enumerate(posted)}
    for place, (number, key) in enumerate(posted):
        endpoint.write(MTU, wr_id=number, l_key=key, continues=last[number] != place)
    endpoint.all_sent()
    failed = lifecycle.end_region(endpoint.engine, endpoint.now, 0, 9)
    requests = [(number, {key for _, key in parts}) for number, parts in groupby(posted, lambda each: each[0])]
    culprit = next((number for number, keys in requests if 9 in keys), None)
    expected = [
        (number, WcStatus.LOC_PROT_ERR if number == culprit else WcStatus.WR_FLUSH_ERR)
        for number, _ in requests
        if culprit is not None
    ]
    assert failed == (culprit is not None)
    assert [(done.wr_id, done.status) for done in endpoint.completions()] == expected
    assert endpoint.qp().cause == (Cause.LOCAL_PROTECTION if failed else Cause.NONE)


def test_the_writes_of_a_request_complete_together_even_where_all_requests_are_signaled() -> None:
    endpoint = Endpoint()
    endpoint.qp().sq_signal_all = True
    for number in range(1, 4):
        endpoint.write(MTU, wr_id=number, continues=True)
        endpoint.write(MTU, wr_id=number)
    endpoint.all_sent()
    endpoint.receives(ack(3))
    assert [done.wr_id for done in endpoint.completions()] == [1]
    endpoint.receives(ack(6))
    assert [done.wr_id for done in endpoint.completions()] == [2, 3]
