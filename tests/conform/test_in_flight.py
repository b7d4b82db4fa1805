"""What is in flight in each round trip, and when it says something about a window: premises first."""

from __future__ import annotations

import pytest

from openmrc.conform.datagrams import TapDatagram, TapPacket
from openmrc.conform.in_flight import in_flight
from openmrc.conform.judging import judge
from openmrc.conform.trail import NothingToJudgeError, Trail, TrailPacket
from openmrc.wire.codes import CONGESTED, Opcode
from openmrc.wire.message import compose

ROUND_TRIP = 4_000_000  # ns


def write(number: int, at: int, psn: int, ecn: int = CONGESTED, again: int = 0) -> TrailPacket:
    message = compose(Opcode.WRITE_MIDDLE, b"", bth={"psn": psn, "rtx": again})
    return TrailPacket(number, at, True, True, TapPacket(TapDatagram(0, 0, 0xC000, b"", 0, ecn), message, ""), psn)


def sack(number: int, at: int, cack: int, mark: int = 1) -> TrailPacket:
    message = compose(Opcode.SACK, seth={"cack_psn": cack, "m": mark})
    return TrailPacket(number, at, False, True, TapPacket(TapDatagram(1, 0, 0xC000, b"", 0, 0), message, ""))


def transfer(windows: list[int], every: int = ROUND_TRIP, ecn: int = CONGESTED, mark: int = 1, again: int = 0) -> Trail:
    """Send a window of packets each round trip; every `again`-th is sent twice."""
    packets: list[TrailPacket] = []
    psn = 0
    for trip, window in enumerate(windows):
        at = trip * every
        for _ in range(window):
            packets.append(write(len(packets) + 1, at, psn, ecn))
            if again and psn % again == 0:
                packets.append(write(len(packets) + 1, at, psn, ecn, again=1))
            psn += 1
        packets.append(sack(len(packets) + 1, at + every, psn - 1, mark))
    return Trail(packets, 0)


def test_the_peak_of_a_round_trip_is_what_was_sent_before_its_report() -> None:
    found = in_flight(transfer([8, 4, 2]))
    assert [each.peak for each in found.rounds] == [8, 4, 2]
    assert set(found.took) == {ROUND_TRIP}


def test_fewer_in_flight_towards_the_end_pass_and_as_many_fail() -> None:
    assert judge("window-shrinks", transfer([32, 24, 16, 12, 8, 8, 8, 8])) == []
    (problem,) = judge("window-shrinks", transfer([32, 32, 32, 32, 32, 32]))
    assert problem.text == "32 packets were in flight at first, 32 in a round trip towards the end"
    assert judge("window-shrinks", transfer([16, 24, 32, 32, 40, 48]))


def test_one_burst_among_small_round_trips_is_no_window_nor_is_a_short_last_one() -> None:
    assert judge("window-shrinks", transfer([32, 16, 8, 8, 8, 8, 40, 8, 8, 8, 8])) == []
    assert judge("window-shrinks", transfer([32, 32, 32, 32, 32, 3]))


@pytest.mark.parametrize(
    ("trail", "said"),
    [
        (transfer([32] * 6, ecn=2), "0 of 192 packets were marked"),
        (transfer([32] * 6, mark=0), "0 of 6 SACKs reported a mark"),
        (transfer([32] * 6, every=100_000), "reported after 0.1 ms already"),
        (transfer([32] * 6, again=8), "24 of 216 packets were sent again"),
        (transfer([4] * 6), "at most 4 packets"),
        (transfer([32]), "1 round trips"),
        (transfer([32, 40, 48, 48, 48]), "5 round trips"),
        (Trail([], 0), "no write was seen"),
    ],
    ids=["unmarked", "unreported", "early", "sent again", "few", "once", "short", "empty"],
)
def test_nothing_is_said_where_a_premise_does_not_hold(trail: Trail, said: str) -> None:
    with pytest.raises(NothingToJudgeError, match=said):
        judge("window-shrinks", trail)


def later(trail: Trail, by: int) -> Trail:
    """A relay that cannot keep up: all that follows the first round trips is late by a factor."""
    for number, each in enumerate(trail.packets):
        if number > 33:
            object.__setattr__(each, "at", each.at * by)
    return trail


def test_a_relay_that_is_too_slow_says_nothing_unless_the_window_halves() -> None:
    with pytest.raises(NothingToJudgeError, match="too late for their timestamps"):
        judge("window-shrinks", later(transfer([32] * 8), 5))
    with pytest.raises(NothingToJudgeError, match="too late for their timestamps"):
        judge("window-shrinks", later(transfer([32, *[20] * 7]), 5))
    assert judge("window-shrinks", later(transfer([32, *[16] * 7]), 5)) == []
