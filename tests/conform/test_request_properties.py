"""What a requester's packets must show, whoever captured them: several planes overtake each other, paths do not."""

from __future__ import annotations

import pytest

from openmrc.conform.captured import judge_trail
from openmrc.conform.datagrams import TapDatagram, TapPacket
from openmrc.conform.judging import judge
from openmrc.conform.trail import NothingToJudgeError, Trail, TrailPacket
from openmrc.wire.codes import Opcode
from openmrc.wire.message import compose


def trail(*sent: tuple[int, int]) -> Trail:
    """Return a capture of writes, each a plane and a PSN; a PSN that comes again says so."""
    packets: list[TrailPacket] = []
    seen: set[int] = set()
    for number, (plane, psn) in enumerate(sent, 1):
        message = compose(Opcode.WRITE_MIDDLE, b"", bth={"psn": psn, "rtx": int(psn in seen)})
        datagram = TapDatagram(0, plane, 0xC000 + plane, b"", 0, 2)
        packets.append(TrailPacket(number, number, True, True, TapPacket(datagram, message, ""), psn))
        seen.add(psn)
    return Trail(packets, 0)


def test_planes_that_were_captured_one_after_the_other_break_no_order() -> None:
    assert judge("new-psns", trail((0, 0), (0, 2), (0, 4), (1, 1), (1, 3), (1, 5))) == []


def test_a_path_that_carries_an_earlier_psn_later_is_named() -> None:
    (problem,) = judge("new-psns", trail((0, 0), (0, 2), (0, 1), (0, 3)))
    assert (problem.packet, problem.text) == (3, "PSN 1 was sent after 2 on the same path")


def test_a_psn_that_is_left_out_is_named_once_every_path_has_passed_it() -> None:
    (problem,) = judge("new-psns", trail((0, 0), (1, 1), (0, 3), (1, 4)))
    assert problem.text == "PSN 2 was left out before 3"
    assert judge("new-psns", trail((0, 0), (1, 1), (0, 3))) == []  # plane 1 may still bring it


def test_a_retransmission_is_no_new_packet() -> None:
    assert judge("new-psns", trail((0, 0), (0, 1), (0, 2), (0, 0), (0, 3))) == []


def test_shares_of_planes_are_judged_only_while_nothing_is_lost() -> None:
    uneven = [(0, psn) for psn in range(40)] + [(1, 40)]
    assert judge("plane-shares", trail(*uneven))
    with pytest.raises(NothingToJudgeError, match="1 packets were sent again"):
        judge("plane-shares", trail(*uneven, (1, 3)))


def test_answers_are_not_missed_in_a_capture_of_one_direction() -> None:
    packets = trail((0, 0), (0, 1))
    probe = compose(Opcode.PROBE, peth={"probe_id": 7})
    packets.packets.append(TrailPacket(3, 3, True, True, TapPacket(TapDatagram(0, 0, 0xC000, b"", 0, 2), probe, "")))
    found = {each.property: each for each in judge_trail(packets)}
    assert found["probes-answered"].verdict.value == "inconclusive"
    assert found["probes-answered"].note == "no packet of the responder was captured"
    sack = compose(Opcode.SACK, seth={"cack_psn": 1})
    packets.packets.append(TrailPacket(4, 4, False, True, TapPacket(TapDatagram(1, 0, 0xC000, b"", 0, 0), sack, "")))
    assert {each.property: each.verdict.value for each in judge_trail(packets)}["probes-answered"] == "fail"
