"""How tester and devices come together: queue pairs that are made, connected, taken through RESET, and ended."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from openmrc.conform.conversation import TESTER_PATHS, ConversationEnds, TestConversation
from openmrc.conform.datagrams import OTHER_SIDE, REQUESTER_SIDE, RESPONDER_SIDE, TapLink
from openmrc.conform.devices.contract import Description, DeviceUnderTest, DeviceUnsupportedError, PairEnd, Wanted
from openmrc.conform.language import PartOfDevice, ScriptTest
from openmrc.conform.media.medium import Medium
from openmrc.errors import MrcError

TESTER_ADDR = 0x5000_0000_0000
TESTER_KEY = 0x7E57_0001
TESTER_BYTES = 1 << 24
OWN_QPNS = range(0x01_0000, 0xFF_FFFF)  # of the tester: all 24 bits, or a field of 16 would pass
FIRST_PSNS = range(0x01_0000, 0xFE_0000)  # likewise; far from the end of the ring, which tests name themselves
_ON_THE_WAY = 10_000_000  # ns in which what a queue pair sent before its RESET arrives


@dataclass(frozen=True)
class TestOpening:
    __test__ = False  # not a test of pytest

    test: ScriptTest
    medium: Medium
    devices: Sequence[DeviceUnderTest]
    chance: random.Random  # chooses first PSNs and the tester's QPN
    is_by_hand: bool = False  # a person operates the device, and chooses its first PSN

    def open(self) -> TestConversation:
        """Make and connect the queue pairs; DeviceUnsupportedError where a device cannot do that."""
        wanted = self.test.wanted
        if wanted.first_psn is None and self.test.part != PartOfDevice.RESPONDER and not self.is_by_hand:
            wanted = msgspec.structs.replace(wanted, first_psn=self.chance.choice(FIRST_PSNS))
        while any(True for _ in self.medium.wait(self.medium.now())):
            continue  # late packets of the connection before
        if self.test.part == PartOfDevice.BOTH:
            return self._open_both(wanted)
        device = self.devices[0]
        described = _opened(device, wanted)
        if self.test.part == PartOfDevice.RESPONDER:
            self._check_answers_trims(described)
        self.medium.meet(0, described.planes[: wanted.planes], described.dscps)
        tester = self._tester(described, wanted)
        device.connect(tester)
        ends = self._ends(tester, described)
        return TestConversation(self.medium, self.devices[:1], wanted, ends, [described], [tester])

    def _ends(self, tester: Description, device: Description) -> ConversationEnds:
        if self.test.part == PartOfDevice.RESPONDER:
            return ConversationEnds(tester, device)
        return ConversationEnds(device, tester)

    def reset(self, conversation: TestConversation) -> None:
        """Take the devices' queue pairs through RESET, and connect them again; the tester's own stay as they are."""
        conversation.described = described = [device.reset() for device in conversation.devices]
        until = self.medium.now() + _ON_THE_WAY
        while self.medium.now() < until:
            conversation.pump(until)
        if self.test.part == PartOfDevice.BOTH:
            conversation.tester = self._join(described, conversation.wanted)
            conversation.ends = ConversationEnds(described[REQUESTER_SIDE], described[RESPONDER_SIDE])
        else:
            conversation.ends = self._ends(conversation.tester[0], described[0])
            conversation.devices[0].connect(conversation.tester[0])
        conversation.life = len(conversation.entries)

    def _check_answers_trims(self, responder: Description) -> None:
        if self.test.trims and not responder.trim_nack:
            raise DeviceUnsupportedError("the test trims packets, the device does not answer them (trim_nack)")

    def _tester(self, device: Description, wanted: Wanted) -> Description:
        """Return what the tester says of itself: a device of the same size."""
        first = self.chance.choice(FIRST_PSNS) if wanted.first_psn is None else wanted.first_psn
        qpn = next(qpn for qpn in iter(lambda: self.chance.choice(OWN_QPNS), None) if qpn != device.qpn)
        ends = [
            PairEnd(qpn=qpn ^ n, psn=first, addr=TESTER_ADDR + n * TESTER_BYTES, r_key=TESTER_KEY + n)
            for n in range(wanted.pairs)
        ]
        return msgspec.structs.replace(
            wanted.description("tester", self._addresses(0, wanted.planes), ends),
            length=TESTER_BYTES,
            mpr=wanted.granted or wanted.mpr,
            trim_nack=wanted.trim_nack,
            dynamic_mpr=wanted.dynamic_mpr and device.dynamic_mpr,
            dscps=device.dscps,
            first_path=TESTER_PATHS,
        )

    def _addresses(self, side: int, planes: int) -> list[str]:
        return [_with_port(link) for link in self.medium.links(side)[:planes]]

    def _open_both(self, wanted: Wanted) -> TestConversation:
        described = [_opened(device, wanted) for device in self.devices]
        for side, each in enumerate(described):
            self.medium.meet(side, each.planes[: wanted.planes], each.dscps)
        if any(len(self.medium.links(side)) < wanted.planes for side in range(len(described))):
            raise DeviceUnsupportedError(f"the test needs {wanted.planes} planes, the tester has fewer")
        self._check_answers_trims(described[RESPONDER_SIDE])
        ends = ConversationEnds(described[REQUESTER_SIDE], described[RESPONDER_SIDE])
        seen = self._join(described, wanted)
        return TestConversation(self.medium, self.devices, wanted, ends, described, seen)

    def _join(self, described: Sequence[Description], wanted: Wanted) -> list[Description]:
        """Connect the devices to each other through the tester; return as what each of them sees the other."""
        seen = [
            msgspec.structs.replace(described[OTHER_SIDE[side]], planes=self._addresses(side, wanted.planes))
            for side in (REQUESTER_SIDE, RESPONDER_SIDE)
        ]
        for device, peer in zip(self.devices, seen, strict=True):
            device.connect(peer)
        return seen

    def close(self) -> None:
        """End the devices' queue pairs."""
        for device in self.devices[: 2 if self.test.part == PartOfDevice.BOTH else 1]:
            try:
                device.close()
            except (MrcError, DeviceUnsupportedError):
                continue  # it is gone already


def _with_port(link: TapLink) -> str:
    host = f"[{link.here}]" if link.here.version == 6 else str(link.here)
    return f"{host}:{link.here_port}"


def _opened(device: DeviceUnderTest, wanted: Wanted) -> Description:
    described = device.open(wanted)
    if len(described.planes) < wanted.planes:
        raise DeviceUnsupportedError(f"the test needs {wanted.planes} planes, the device has {len(described.planes)}")
    if (pairs := len(described.pairs())) < wanted.pairs:
        raise DeviceUnsupportedError(f"the test needs {wanted.pairs} queue pairs, the device has {pairs} (further)")
    if wanted.dynamic_mpr and not described.dynamic_mpr:
        raise DeviceUnsupportedError("the test needs Dynamic MPR, the device has none (dynamic_mpr)")
    return described
