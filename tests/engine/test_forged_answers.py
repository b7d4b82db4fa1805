"""Answers that the peer cannot have sent: whoever knows a queue pair's number does not yet know its PSNs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.engine.state.machines import EvState, QpState
from openmrc.engine.state.tables import Cause
from openmrc.wire.codes import NackReason, Opcode, PathMark, Syndrome
from tests.engine.scripted_peer import MTU, Endpoint, ack, data, nack, sack

FIRST = 5_000_000  # the first PSN
SENT = 40  # packets in flight, of which 10 are acknowledged
REFUSALS = (Syndrome.INVALID_REQUEST, Syndrome.REMOTE_ACCESS_ERROR, Syndrome.REMOTE_OPERATIONAL_ERROR)


def sending() -> Endpoint:
    """An endpoint with PSNs FIRST + 10 to FIRST + 39 in flight."""
    endpoint = Endpoint(first_psn=FIRST)
    for _ in range(SENT):
        endpoint.write(MTU)
    endpoint.all_sent()
    endpoint.receives(sack(FIRST + 9))
    return endpoint


def tables_after(endpoint: Endpoint, packet: dict[str, Any]) -> bool:
    """Whether a packet changes nothing but the count of malformed ones."""
    watched = ("qps", "peers", "evs", "rotations", "messages", "sent", "control")
    counted = ("malformed", "heard_rotation", "heard_ports", "nacks_received")
    before = {name: np.asarray(getattr(endpoint.engine, name)).copy() for name in watched}
    malformed = endpoint.qp().malformed
    endpoint.receives(packet)
    assert endpoint.qp().malformed == malformed + 1
    return all(
        np.array_equal(before[name][column], np.asarray(getattr(endpoint.engine, name))[column])
        for name in watched
        for column in before[name].dtype.names or ()
        if column not in counted
    )


OUTSIDE = (FIRST - 3000, FIRST + SENT, FIRST + 1_000_000, FIRST - 1_000_000, 0)


@pytest.mark.parametrize("psn", OUTSIDE)
@pytest.mark.parametrize("syndrome", REFUSALS)
def test_transport_refusal_of_a_packet_outside_the_window_changes_nothing(psn: int, syndrome: Syndrome) -> None:
    assert tables_after(sending(), {**ack(0, syndrome), "psn": psn})


def test_transport_refusal_of_an_acknowledged_packet_changes_nothing() -> None:
    assert tables_after(sending(), {**ack(0, Syndrome.INVALID_REQUEST), "psn": FIRST + 9})


@pytest.mark.parametrize("psn", [FIRST + 10, FIRST + SENT - 1])
def test_transport_refusal_of_a_packet_in_flight_ends_the_connection(psn: int) -> None:
    endpoint = sending()
    endpoint.receives({**ack(0, Syndrome.INVALID_REQUEST), "psn": psn})
    assert (endpoint.qp().state, endpoint.qp().cause) == (QpState.ERROR, Cause.REMOTE_INVALID_REQUEST)


@pytest.mark.parametrize("psn", OUTSIDE)
def test_transport_ack_outside_the_window_completes_nothing(psn: int) -> None:
    endpoint = sending()
    assert tables_after(endpoint, {**ack(10), "psn": psn})
    assert endpoint.completions() == []


@pytest.mark.parametrize("reason", NackReason)
@pytest.mark.parametrize("psn", [*OUTSIDE, FIRST + 9])
def test_nack_outside_the_window_changes_nothing_whatever_its_reason(psn: int, reason: NackReason) -> None:
    assert tables_after(sending(), nack(psn, reason))


def test_unexpected_event_of_a_packet_in_flight_ends_the_connection() -> None:
    endpoint = sending()
    endpoint.receives(nack(FIRST + 10, NackReason.UNEXP_EVENT))
    assert (endpoint.qp().state, endpoint.qp().cause) == (QpState.ERROR, Cause.UNEXPECTED_EVENT)


@pytest.mark.parametrize("cack", OUTSIDE)
def test_sack_outside_the_window_blames_no_path_and_takes_nothing_out_of_flight(cack: int) -> None:
    endpoint = sending()
    marked: dict[str, Any] = {
        "path_mark": PathMark.ALWAYS_SKIP,
        "reflected_entropy": 0xC000,
        "rcvd_bytes": 4000,
        "rcv_cwnd_pen": 127,
    }
    assert tables_after(endpoint, sack(cack, **marked))
    assert endpoint.evs_in_state(EvState.ASSUMED_BAD) == []


def test_a_report_may_be_late_by_two_windows_and_no_packet_more() -> None:
    endpoint = sending()
    oldest = FIRST + 9 - 2 * (endpoint.qp().sent_mask + 1)
    endpoint.receives(sack(oldest))
    assert endpoint.qp().malformed == 0
    assert tables_after(endpoint, sack(oldest - 1))


def test_the_responder_says_which_packet_it_refuses_and_how_far_it_acknowledges() -> None:
    endpoint = Endpoint(expected_psn=100)
    endpoint.receives(data(100, ack_request=1))
    endpoint.sends(Opcode.SACK)
    endpoint.sends(Opcode.ACKNOWLEDGE, psn=100, syndrome=Syndrome.ACK)
    endpoint.receives(data(103, r_key=1))
    endpoint.sends(Opcode.ACKNOWLEDGE, psn=103, syndrome=Syndrome.REMOTE_ACCESS_ERROR)
    endpoint.receives(data(101))
    endpoint.sends(Opcode.ACKNOWLEDGE, psn=103, syndrome=Syndrome.REMOTE_ACCESS_ERROR)
