"""Whatever a device sends, the tester comes to a verdict: damaged packets of every kind, at random."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.datagrams import TapDatagram
from openmrc.conform.devices.virtual import VirtualDevice
from openmrc.conform.execution import TestExecution
from openmrc.conform.language import ScriptTest
from openmrc.conform.media import TapArrival, VirtualMedium
from openmrc.conform.output.explain import explanation
from openmrc.conform.results import TestResult, TestVerdict

# Tests that between them see packets of every kind, relay them and judge them by every family of properties.
SAMPLE = ["7.5/3", "7.5.2/8", "table-7-3/1", "7.5.6/1", "6.2.2/10", "7.4.4/1", "6.2.2/15", "9.3.1/3", "table-7-3/7"]


class DamagingMedium(VirtualMedium):
    """Damages, cuts, grows or repeats datagrams on their way to the tester."""

    random = random.Random(1)

    def wait(self, until: int) -> list[TapArrival]:
        arrived = super().wait(until)
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
        return replace(datagram, body=bytes(body), dscp=dscp, ecn=self.random.randrange(4))


def run(test: ScriptTest, seed: int) -> TestResult:
    devices = [VirtualDevice(side) for side in range(2 if test.part.value == "both" else 1)]
    medium = DamagingMedium(devices)
    medium.random = random.Random(seed)
    return TestExecution(test, medium, devices).run()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("test", chosen(shipped_tests(), SAMPLE), ids=SAMPLE)
def test_damaged_packets_lead_to_a_verdict(test: ScriptTest, seed: int) -> None:
    result = run(test, seed)
    assert result.verdict in set(TestVerdict)
    assert list(explanation(result))
