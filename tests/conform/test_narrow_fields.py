"""A device that keeps PSNs or QPNs in 16 bits fails: the tester's numbers use all 24."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from msgspec import structs

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.datagrams import TapDatagram, seal
from openmrc.conform.devices.virtual import VirtualDevice, links
from openmrc.conform.execution import TestExecution
from openmrc.conform.media.medium import VirtualMedium
from openmrc.conform.results import TestResult, TestVerdict
from openmrc.wire.codes import Opcode

ACK, NACK, SACK, WRITE = Opcode.ACKNOWLEDGE, Opcode.NACK, Opcode.SACK, Opcode.WRITE_ONLY


class NarrowDevice(VirtualDevice):
    """Sends zero in the upper byte of a field of 24 bits."""

    def __init__(self, opcode: Opcode, at: int) -> None:
        super().__init__(0)
        self._opcode, self._at = opcode, at

    def departures(self) -> Any:
        return [self._narrowed(each) for each in super().departures()]

    def _narrowed(self, leaves: TapDatagram) -> TapDatagram:
        if leaves.body[0] != self._opcode:
            return leaves
        body = leaves.body[: self._at] + b"\0" + leaves.body[self._at + 1 : -4]
        link = links(0, 2)[leaves.plane]
        sealed = seal(body, leaves.source_port, replace(link, here=link.there, there=link.here))
        return structs.replace(leaves, body=sealed)


def run(test_id: str, device: VirtualDevice, seed: int) -> TestResult:
    (test,) = chosen(shipped_tests(), [test_id])
    return TestExecution(test, VirtualMedium([device]), [device], chance=Random(seed)).run()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("opcode", "at", "test_id"),
    [
        (SACK, 5, "table-7-10/1"),  # destination QPN
        (ACK, 5, "table-7-10/1"),
        (NACK, 5, "table-7-10/1"),
        (SACK, 12 + 13, "7.5.2.2/1"),  # cack_psn
        (NACK, 12 + 13, "table-7-3/1"),  # nack_psn
        (WRITE, 9, "6.2.2/11"),
    ],
)
def test_a_field_of_24_bits_that_is_sent_in_16_fails(opcode: Opcode, at: int, test_id: str, seed: int) -> None:
    assert run(test_id, VirtualDevice(0), seed).verdict == TestVerdict.PASS
    assert run(test_id, NarrowDevice(opcode, at), seed).verdict == TestVerdict.FAIL
