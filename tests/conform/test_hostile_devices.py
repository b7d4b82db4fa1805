"""Whatever a device sends, the tester comes to a verdict: damaged packets of every kind, at random."""

from __future__ import annotations

import contextlib
import random
from ipaddress import ip_address

import pytest
from msgspec import structs

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.conversation import ConversationEnds, TapEntry, TestConversation
from openmrc.conform.datagrams import TapDatagram, TapLink, seal
from openmrc.conform.devices.virtual import VirtualDevice
from openmrc.conform.execution import TestExecution
from openmrc.conform.explain import entry_line, explanation
from openmrc.conform.judging import PROPERTIES, judge, trail_of
from openmrc.conform.language import ScriptTest
from openmrc.conform.matching import matches
from openmrc.conform.media.frames import as_changed, bridged
from openmrc.conform.media.medium import TapArrival, VirtualMedium
from openmrc.conform.parsing import parse_tests
from openmrc.conform.relay import changed
from openmrc.conform.results import TestResult, TestVerdict
from openmrc.conform.suite import run_virtually
from openmrc.conform.trail import NothingToJudgeError
from openmrc.wire.codes import Opcode
from openmrc.wire.ip import datagram
from openmrc.wire.message import compose

# Tests that between them see packets of every kind, relay them and judge them by every family of properties.
SAMPLE = ["7.5/3", "7.5.2/8", "table-7-3/1", "7.5.6/1", "6.2.2/10", "7.4.4/1", "6.2.2/15", "9.3.1/3", "table-7-3/7"]
SAMPLE += ["6.2.2/13", "6.1/10"]


class DamagingMedium(VirtualMedium):
    """Damages, cuts, grows or repeats datagrams on their way to the tester, and loses them once there were thousands.

    Two devices that never agree ask and answer until the test's patience ends, in 40,000 packets of the same kinds.
    """

    random = random.Random(1)
    left = 2000  # datagrams that still reach the tester

    def wait(self, until: int, polls: bool = False) -> list[TapArrival]:
        arrived = super().wait(until, polls)[: self.left]
        self.left -= len(arrived)
        return [TapArrival(each.at, self.damaged(each.datagram)) for each in arrived for _ in range(self.copies())]

    def copies(self) -> int:
        return self.random.choice((1, 1, 1, 1, 2))

    def damaged(self, datagram: TapDatagram) -> TapDatagram:
        body = bytearray(datagram.body)
        for _ in range(self.random.randrange(4)):
            match self.random.randrange(4):
                case 0 if body:
                    body[self.random.randrange(len(body))] ^= 1 << self.random.randrange(8)
                case 1:
                    del body[self.random.randrange(len(body) + 1) :]
                case 2:
                    body += self.random.randbytes(self.random.randrange(9))
                case _ if body:
                    body[self.random.randrange(len(body))] = self.random.choice((0, 0xFF))
        dscp = self.random.choice((datagram.dscp, datagram.dscp, 12, 63))
        return structs.replace(datagram, body=bytes(body), dscp=dscp, ecn=self.random.randrange(4))


def run(test: ScriptTest, seed: int) -> TestResult:
    devices = [VirtualDevice(side) for side in range(2 if test.part.value == "both" else 1)]
    medium = DamagingMedium(devices)
    medium.random = random.Random(seed)
    return TestExecution(test, medium, devices).run()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("test", chosen(shipped_tests(), SAMPLE), ids=lambda test: test.id)
def test_damaged_packets_lead_to_a_verdict(test: ScriptTest, seed: int) -> None:
    result = run(test, seed)
    assert result.verdict in set(TestVerdict)
    assert list(explanation(result))


def test_the_sample_sees_packets_of_every_kind_that_devices_send() -> None:
    seen = {
        entry.message.opcode
        for test in chosen(shipped_tests(), SAMPLE)
        for entry in run_virtually(test).entries
        if entry.message is not None
    }
    assert seen == set(Opcode)


def damaged(body: bytes, chance: random.Random) -> bytes:
    """A packet with a few bytes changed, missing or too many, anywhere."""
    found = bytearray(body)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(4):
            case 0:
                found[at : at + 1] = chance.randbytes(1)
            case 1:
                del found[at : at + chance.randrange(1, 9)]
            case 2:
                found[at:at] = chance.randbytes(chance.randrange(1, 9))
            case _:
                del found[at:]
    return bytes(found)


@pytest.mark.parametrize("opcode", Opcode, ids=lambda opcode: opcode.name)
def test_any_bytes_are_read_shown_compared_and_judged(opcode: Opcode) -> None:
    chance = random.Random(int(opcode))
    (test,) = chosen(shipped_tests(), ["6.3.1/1"])
    talk = hostile_talk(test)
    expectation = parse_tests("test 1/1 wire-order must responder\n    A.\n< ANY psn=0 va=$v acked=1 icrc=1\n", "a")[0]
    whole = seal(compose(opcode, bytes(64) if opcode <= Opcode.WRITE_ONLY_IMM else b"").emit(), 0xC000, LINK)
    frame = bytes(12) + b"\x86\xdd" + datagram(ip_address("fd25::1"), ip_address("fd25::2"), 0xC000, 4791, whole)
    for _ in range(150):
        dscp = chance.choice((4, 12, 46))
        bodies = TapDatagram(0, 0, 0xC000, damaged(whole, chance), dscp)
        spoilt = bridged(damaged(frame, chance))
        for each in (bodies, *([spoilt.tap(0, 0)] if spoilt is not None else [])):
            entry = talk.add(TapEntry(0, talk.medium.now(), True, 0, each, LINK))
            matches(talk, expectation.steps[0], entry)
            assert entry_line(entry)
            if each.frame:
                as_changed(changed(chance.choice(("mark", "trim", "corrupt", "pass")), each))
    trail = trail_of(talk, test.part)
    for name in PROPERTIES:
        with contextlib.suppress(NothingToJudgeError):
            judge(name, trail)


LINK = TapLink(ip_address("10.0.0.1"), ip_address("10.0.0.2"))


def hostile_talk(test: ScriptTest) -> TestConversation:
    """A conversation with a device of ours, before its first packet."""
    device = VirtualDevice(0)
    medium = VirtualMedium([device])
    described = device.open(test.wanted)
    return TestConversation(medium, [device], test.wanted, ConversationEnds(described, described), [described], [])
