"""Run one test: line by line, against whatever the medium leads to, and come to a verdict."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from openmrc.conform import crafting, judging
from openmrc.conform.conversation import TESTER_PATHS, ConversationEnds, TapEntry, TestConversation
from openmrc.conform.datagrams import REQUESTER_SIDE, RESPONDER_SIDE, TapLink
from openmrc.conform.devices.contract import (
    Description,
    DeviceGoneError,
    DeviceSilentError,
    DeviceUnderTest,
    DeviceUnsupportedError,
    PairEnd,
    ProfileOrder,
    Wanted,
    WriteOrder,
    pattern,
)
from openmrc.conform.language import DEFAULT_PATIENCE, REPORTS, Level, PartOfDevice, ScriptStep, ScriptTest
from openmrc.conform.matching import matches
from openmrc.conform.media.medium import Medium
from openmrc.conform.relay import Relay
from openmrc.conform.results import TestFailure, TestResult, TestVerdict
from openmrc.conform.trail import NothingToJudgeError
from openmrc.errors import MrcError

TESTER_ADDR = 0x5000_0000_0000
TESTER_KEY = 0x7E57_0001
TESTER_BYTES = 1 << 24
OWN_QPNS = range(0x01_0000, 0xFF_FFFF)  # of the tester: all 24 bits, or a field of 16 would pass
FIRST_PSNS = range(0x01_0000, 0xFE_0000)  # likewise; far from the end of the ring, which tests name themselves
KEY = "key"  # variable with the R_Key of the responder's region
QPN, CONTEXT = "qpn", "context"  # variables with the tester's QPN, and its low 16 bits
DEVICE = "device"  # variable with the QPN of the device, the first of two
GIVEN = (KEY, QPN, CONTEXT, DEVICE)
MOST_SHOWN = 3  # packets that came closest
LONGEST_PUMP = 1_000_000_000  # ns
TOLERATED_STANDSTILL = 0.25  # of the time that an expectation waits
LONGEST_STANDSTILL = 100_000_000  # ns: a device may have given up by then, however long the expectation waits
_MEMORY_POLL = 2_000_000  # ns
_ON_THE_WAY = 10_000_000  # ns in which what a queue pair sent before its RESET arrives


class _Unmet(Exception):
    """An expectation was not fulfilled."""

    def __init__(self, failure: TestFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class TestExecution:
    """One test that runs."""

    __test__ = False  # not a test of pytest

    def __init__(
        self,
        test: ScriptTest,
        medium: Medium,
        devices: Sequence[DeviceUnderTest],
        slack: int = 0,
        chance: random.Random | None = None,
    ) -> None:
        """Prepare to run a test against one device, or two to relay between; expectations wait `slack` (ns) more.

        `chance` chooses first PSNs and the tester's QPN, always the same ones by default.
        """
        self._slack = slack
        self._chance = random.Random(test.id) if chance is None else chance
        self.test = test
        self.medium = medium
        self.devices = list(devices)
        self.reactions: list[tuple[str, int]] = []
        self._at = 0  # ns, of the step before
        self._since = 0  # entries before this one are no answers to the current block of injections
        self._in_block = False
        self._causes: list[tuple[str, int]] = []  # packets injected, or the command, since the step before
        self._relay: Relay | None = None

    def run(self) -> TestResult:
        """Run it and return what it came to."""
        begun, stood = self.medium.now(), self.medium.standstill()
        result = TestResult(self.test, TestVerdict.PASS)
        conversation = None
        try:
            conversation = self._open()
            conversation.begun_at = self.medium.standstill()
            conversation.variables |= _given(conversation)
            self._play(conversation)
        except DeviceUnsupportedError as error:
            result.verdict, result.note = TestVerdict.UNSUPPORTED, str(error)
        except DeviceGoneError as error:
            has_ended = not isinstance(error, DeviceSilentError)
            result.failure = TestFailure(0, "", f"the device is gone: {error}", is_contradiction=has_ended)
        except _Unmet as unmet:
            result.failure = unmet.failure
        except NothingToJudgeError as nothing:
            result.verdict, result.note = TestVerdict.INCONCLUSIVE, str(nothing)
        finally:
            self._close()
        if conversation is not None:
            variables = conversation.variables
            result.entries = conversation.entries
            result.observed = {name: value for name, value in variables.items() if name not in GIVEN}
            result.devices = [each.device for each in conversation.described]
            planes = self.test.wanted.planes
            result.links = [list(self.medium.links(side)[:planes]) for side in range(len(conversation.devices))]
            self._conclude(result, conversation)
        elif result.failure is not None:
            self._conclude_unopened(result, self.medium.now() - begun, self.medium.standstill() - stood)
        result.reactions = self.reactions
        result.relayed = self._relay.took if self._relay is not None else []
        result.seconds = (self.medium.now() - begun) / 1e9
        return result

    def _conclude_unopened(self, result: TestResult, waited: int, standstill: int) -> None:
        """Judge a device that made no queue pair, whatever the level: a busy host may have kept it from that."""
        result.verdict = TestVerdict.FAIL
        if not result.failure or result.failure.is_contradiction or standstill <= TOLERATED_STANDSTILL * waited:
            return
        result.verdict = TestVerdict.INCONCLUSIVE
        result.note = f"not ready yet: this host kept tester or device waiting for {standstill / 1e9:.0f} s"

    def _conclude(self, result: TestResult, conversation: TestConversation) -> None:
        if result.verdict not in (TestVerdict.PASS,):
            return
        if result.failure is not None:
            limit = min(TOLERATED_STANDSTILL * self._patience_of(result.failure.line), LONGEST_STANDSTILL)
            if conversation.standstill > limit:
                result.verdict = TestVerdict.INCONCLUSIVE
                result.note = f"this host kept tester or device waiting for {conversation.standstill / 1e6:.0f} ms"
                return
            result.verdict = TestVerdict.FAIL
        if self.test.level == Level.INFO:
            result.verdict = TestVerdict.INFO
        packets = [each.packet for each in conversation.entries if each.packet is not None]
        supposing = next((each.supposing for each in packets if each.supposing), "")
        if supposing and self.test.clause == "wire-icrc":
            result.note = f"the ICRC is right for {supposing}, which sockets hide"

    def _patience_of(self, line: int) -> int:
        step = next((each for each in self.test.steps if each.line == line), None)
        return step.latest if step is not None and step.latest is not None else DEFAULT_PATIENCE

    # Opening

    def _open(self) -> TestConversation:
        wanted = self.test.wanted
        if wanted.first_psn is None and self.test.part != PartOfDevice.RESPONDER and not self._slack:
            wanted = msgspec.structs.replace(wanted, first_psn=self._chance.choice(FIRST_PSNS))
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

    def _reset(self, conversation: TestConversation) -> None:
        """Take the devices' queue pairs through RESET, and connect them again; the tester's own stay as they are."""
        conversation.described = described = [device.reset() for device in conversation.devices]
        self._advance(conversation, self.medium.now() + _ON_THE_WAY)
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
        first = self._chance.choice(FIRST_PSNS) if wanted.first_psn is None else wanted.first_psn
        qpn = next(qpn for qpn in iter(lambda: self._chance.choice(OWN_QPNS), None) if qpn != device.qpn)
        return Description(
            device="tester",
            planes=self._addresses(0, wanted.planes),
            qpn=qpn,
            psn=first,
            further=[
                PairEnd(qpn=qpn ^ n, psn=first, addr=TESTER_ADDR + n * TESTER_BYTES, r_key=TESTER_KEY + n)
                for n in range(1, wanted.pairs)
            ],
            addr=TESTER_ADDR,
            r_key=TESTER_KEY,
            length=TESTER_BYTES,
            mtu=wanted.mtu,
            mpr=wanted.granted or wanted.mpr,
            max_wimm=wanted.max_wimm,
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
            _at(described[RESPONDER_SIDE], self._addresses(REQUESTER_SIDE, wanted.planes)),
            _at(described[REQUESTER_SIDE], self._addresses(RESPONDER_SIDE, wanted.planes)),
        ]
        for device, peer in zip(self.devices, seen, strict=True):
            device.connect(peer)
        return seen

    def _close(self) -> None:
        for device in self.devices[: 2 if self.test.part == PartOfDevice.BOTH else 1]:
            try:
                device.close()
            except (MrcError, DeviceUnsupportedError):
                continue  # it is gone already

    # Playing

    def _play(self, conversation: TestConversation) -> None:
        self._relay = Relay(conversation) if self.test.part == PartOfDevice.BOTH else None
        self._at = self.medium.now()
        do: dict[str, Callable[[TestConversation, ScriptStep], None]] = {
            ">": self._inject,
            "<": self._expect,
            "!": self._expect_none,
            "*": self._command,
            ":": self._rule,
            "=": self._judge,
        }
        for step in self.test.steps:
            acts = step.kind in ">:" or (step.kind == "*" and step.subject not in REPORTS)
            if acts and (not self._in_block or step.earliest):
                self._advance(conversation, self._at + step.earliest)
                if not self._in_block:
                    self._causes.clear()
                    self._since = len(conversation.entries)
            self._in_block = acts
            do[step.kind](conversation, step)

    def _advance(self, conversation: TestConversation, until: int) -> None:
        """Let time pass."""
        while self.medium.now() < until:
            self._pump(conversation, until)

    def _pump(self, conversation: TestConversation, until: int) -> None:
        due = self._relay.next_due() if self._relay is not None else None
        limit = min(until, self.medium.now() + LONGEST_PUMP)
        limit = limit if due is None else min(limit, due)
        conversation.pump(limit, self._relay.serve if self._relay is not None else None)
        if self._relay is not None:
            self._relay.release_due()

    def _inject(self, conversation: TestConversation, step: ScriptStep) -> None:
        for datagram in crafting.craft(conversation, step):
            at = self.medium.now()
            self.medium.send(datagram)
            link = conversation.link(datagram.side, datagram.plane)
            sent = replace(link, here=link.there, there=link.here, here_port=link.there_port, there_port=link.here_port)
            conversation.add(TapEntry(0, at, False, datagram.side, datagram, sent))
            self._at = at
            self._causes.append((step.subject, at))

    def _command(self, conversation: TestConversation, step: ScriptStep) -> None:
        number = {each.name: each.value.numbers[0] for each in step.conditions if each.value.numbers}
        match step.subject:
            case "write":
                self._at = self.medium.now()
                side = number.pop("side", REQUESTER_SIDE)
                conversation.devices[side].write(WriteOrder(**{"length": conversation.wanted.mtu, **number}))
            case "reset":
                self._at = self.medium.now()
                self._reset(conversation)
            case "port":
                self._at = self.medium.now()
                conversation.devices[number.get("side", 0)].set_port(number["plane"], bool(number["up"]))
            case "profile":
                _profile(conversation.devices[0], step)
                self._at = self.medium.now()
            case "wait":
                self._at = self.medium.now()
            case "memory":
                self._memory(conversation, step, number)
                return
            case _:
                self._expect(conversation, step)
                return
        self._causes.append((step.subject, self._at))

    def _rule(self, conversation: TestConversation, step: ScriptStep) -> None:
        if self._relay is None:
            raise _Unmet(TestFailure(step.line, step.text, "only tests of two devices have relay rules"))
        self._relay.add(step)
        self._at = self.medium.now()

    def _judge(self, conversation: TestConversation, step: ScriptStep) -> None:
        problems = judging.judge(step.subject, judging.trail_of(conversation, self.test.part))
        if problems:
            first = problems[0]
            numbers = tuple(each.packet for each in problems[:MOST_SHOWN])
            found = judging.PROPERTIES[step.subject]
            proves = not (found.wants_answers or found.follows_timing)
            raise _Unmet(TestFailure(step.line, step.text, first.text, numbers, is_contradiction=proves))

    # Expecting

    def _expect(self, conversation: TestConversation, step: ScriptStep) -> None:
        deadline = self._at + (step.latest if step.latest is not None else DEFAULT_PATIENCE) + self._slack
        looked, closest = self._since, list[tuple[int, list[str]]]()
        while True:
            for entry in conversation.entries[looked:]:
                looked = entry.number
                self._check_alive(step, entry)
                if entry.used_by or (unmet := matches(conversation, step, entry)) is None:
                    continue
                if not unmet and (step.earliest == 0 or entry.at >= self._at + step.earliest):
                    self._met(step, entry)
                    return
                early = [] if unmet else [f"it came {(self._at + step.earliest - entry.at) / 1e6:.3f} ms too early"]
                closest.append((entry.number, unmet or early))
            if self.medium.now() >= deadline:
                raise _Unmet(self._miss(step, closest, deadline - self._at))
            self._pump(conversation, deadline)

    def _check_alive(self, step: ScriptStep, entry: TapEntry) -> None:
        """Do not wait for packets of a device that has given up."""
        failed = entry.event is not None and entry.event.event == "completion" and entry.event.status != "SUCCESS"
        if failed and step.kind == "<" and self.test.part == PartOfDevice.BOTH and entry.event is not None:
            reason = f"the device gave up: {entry.event.status}"
            raise _Unmet(TestFailure(step.line, step.text, reason, (entry.number,)))

    def _met(self, step: ScriptStep, entry: TapEntry) -> None:
        entry.used_by = step.line
        if entry.packet is not None and len(self._causes) == 1:  # what several packets cause has no one beginning
            cause, at = self._causes[0]
            if entry.at >= at:  # else it was on its way before
                self.reactions.append((f"{cause} > {entry.packet.name}", entry.at - at))
        self._causes.clear()
        self._at = max(self._at, entry.at)

    def _miss(self, step: ScriptStep, closest: list[tuple[int, list[str]]], waited: int) -> TestFailure:
        closest.sort(key=lambda each: len(each[1]))
        if not closest:
            return TestFailure(step.line, step.text, f"nothing of the kind came within {waited / 1e6:g} ms")
        reason = "; ".join(closest[0][1])
        return TestFailure(step.line, step.text, reason, tuple(number for number, _ in closest[:MOST_SHOWN]))

    def _expect_none(self, conversation: TestConversation, step: ScriptStep) -> None:
        until = self._at + (step.latest or 0)
        looked = self._since
        while True:
            for entry in conversation.entries[looked:]:
                looked = entry.number
                if entry.used_by == 0 and matches(conversation, step, entry) == []:
                    by_timer = entry.message is not None and bool(entry.message.bth.rtx)
                    failure = TestFailure(step.line, step.text, "such a packet came", (entry.number,), not by_timer)
                    raise _Unmet(failure)
            if self.medium.now() >= until:
                break
            self._pump(conversation, until)
        self._at = self.medium.now()

    def _memory(self, conversation: TestConversation, step: ScriptStep, number: dict[str, int]) -> None:
        value, fill = step.get("offset"), number.get("fill", 1)
        span = value.range() if value is not None else range(64)
        offset, length = span[0], len(span)
        wanted = pattern(offset, length, fill)
        deadline = self.medium.now() + (step.latest if step.latest is not None else DEFAULT_PATIENCE) + self._slack
        device = conversation.devices[number.get("side", -1)]
        while (found := device.memory(offset, length, number.get("pair", 0))) != wanted:
            if fill == 0 or self.medium.now() >= deadline:
                raise _Unmet(_difference(step, offset, found, wanted))
            self._pump(conversation, min(deadline, self.medium.now() + _MEMORY_POLL))


def _profile(device: DeviceUnderTest, step: ScriptStep) -> None:
    """Have a device make an EV profile; raise _Unmet unless it refuses it just as the line says."""
    given: dict[str, Any] = {each.name: each.value.numbers for each in step.conditions}
    single = {name: given[name][0] for name in ("count", "min_active") if name in given}
    order = {
        "mode": getattr(step.get("mode"), "word", ""),
        "fields": [(*each.value.numbers, 0, 0, 0, 0)[:5] for each in step.conditions if each.name == "field"],
    }
    found = device.profile(msgspec.convert(given | order | single, ProfileOrder))
    if found != getattr(step.get("refused"), "word", ""):
        reason = f"it is refused: {found}" if found else "it is taken"
        raise _Unmet(TestFailure(step.line, step.text, reason, is_contradiction=True))


def _difference(step: ScriptStep, offset: int, found: bytes, wanted: bytes) -> TestFailure:
    """Return what differs in memory: of bytes that were not written at all they may still come, others are wrong."""
    differing = [at for at in range(len(wanted)) if found[at : at + 1] != wanted[at : at + 1]]
    if len(found) < len(wanted):
        return TestFailure(step.line, step.text, "the region is shorter", is_contradiction=True)
    at = next((each for each in differing if found[each]), differing[0])
    text = f"byte {offset + at} is {found[at]:#04x}, expected {wanted[at]:#04x}"
    return TestFailure(step.line, step.text, text, is_contradiction=found[at] != 0)


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


def _given(conversation: TestConversation) -> dict[str, int]:
    """Return the variables that a script need not bind."""
    qpn = conversation.tester[0].qpn
    device = conversation.described[0].qpn
    return {KEY: conversation.ends.responder.r_key, QPN: qpn, CONTEXT: qpn & 0xFFFF, DEVICE: device}


def _at(description: Description, planes: list[str]) -> Description:
    return msgspec.structs.replace(description, planes=planes)
