"""Run one test: line by line, against whatever the medium leads to, and come to a verdict."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from openmrc.conform import crafting, judging
from openmrc.conform.conversation import TapEntry, TestConversation
from openmrc.conform.datagrams import REQUESTER_SIDE
from openmrc.conform.devices.contract import (
    DeviceGoneError,
    DeviceSilentError,
    DeviceUnderTest,
    DeviceUnsupportedError,
    ProfileOrder,
    WriteOrder,
    pattern,
)
from openmrc.conform.language import DEFAULT_PATIENCE, REPORTS, PartOfDevice, ScriptStep, ScriptTest
from openmrc.conform.matching import matches, miscounted
from openmrc.conform.media.medium import Medium
from openmrc.conform.opening import TestOpening
from openmrc.conform.parsing import CONTEXT, DEVICE, GIVEN, KEY, QPN
from openmrc.conform.relay import Relay
from openmrc.conform.results import TestFailure, TestResult, TestVerdict
from openmrc.conform.trail import NothingToJudgeError

MOST_SHOWN = 3  # packets that came closest
LONGEST_PUMP = 1_000_000_000  # ns
_MEMORY_POLL = 2_000_000  # ns


class _Unmet(Exception):
    """An expectation was not fulfilled."""

    def __init__(self, failure: TestFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class TestExecution:
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

        `chance` chooses first PSNs and the tester's QPN, always the same ones by default. ScriptError if the test
        judges by a property that there is not.
        """
        judging.check_properties(test.steps)
        self._slack = slack
        self._opening = TestOpening(test, medium, devices, chance or random.Random(test.id), slack > 0)
        self.test = test
        self.medium = medium
        self.reactions: list[tuple[str, int]] = []
        self._at = 0  # ns, of the step before
        self._since = 0  # entries before this one are no answers to the current block of injections
        self._in_block = False
        self._causes: list[tuple[str, int]] = []  # packets injected, or the command, since the step before
        self._relay: Relay | None = None

    def run(self) -> TestResult:
        begun, stood = self.medium.now(), self.medium.standstill()
        result = TestResult(self.test, TestVerdict.PASS)
        conversation = None
        try:
            conversation = self._opening.open()
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
            self._opening.close()
        if conversation is not None:
            variables = conversation.variables
            result.entries = conversation.entries
            result.observed = {name: value for name, value in variables.items() if name not in GIVEN}
            result.devices = [each.device for each in conversation.described]
            planes = self.test.wanted.planes
            result.links = [list(self.medium.links(side)[:planes]) for side in range(len(conversation.devices))]
            result.conclude(conversation.standstill)
        else:
            result.conclude_unopened(self.medium.now() - begun, self.medium.standstill() - stood)
        result.reactions = self.reactions
        result.relayed = self._relay.took if self._relay is not None else []
        result.seconds = (self.medium.now() - begun) / 1e9
        return result

    # Playing

    def _play(self, conversation: TestConversation) -> None:
        self._relay = Relay(conversation) if self.test.part == PartOfDevice.BOTH else None
        self._at = self.medium.now()
        do: dict[str, Callable[[TestConversation, ScriptStep], None]] = {
            ">": self._inject,
            "<": self._expect,
            "!": self._expect_none,
            "?": self._count,
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
                self._opening.reset(conversation)
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
        if self._relay is not None:  # parsing lets no other test have rules
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

    def _count(self, conversation: TestConversation, step: ScriptStep) -> None:
        if unmet := miscounted(conversation, step):
            raise _Unmet(TestFailure(step.line, step.text, unmet[0]))

    def _memory(self, conversation: TestConversation, step: ScriptStep, number: dict[str, int]) -> None:
        value, fill = step.get("offset"), number.get("fill", 1)
        span = value.range() if value is not None else range(64)
        offset, length = min(span), len(span)
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


def _given(conversation: TestConversation) -> dict[str, int]:
    """Return the variables that a script need not bind."""
    qpn = conversation.tester[0].qpn
    device = conversation.described[0].qpn
    return {KEY: conversation.ends.responder.r_key, QPN: qpn, CONTEXT: qpn & 0xFFFF, DEVICE: device}
