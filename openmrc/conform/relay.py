"""The tester between two devices: pass, drop, trim, mark, delay, duplicate, hold back or corrupt packets by rules.

A rule picks packets by kind and conditions and counts what it picked: `nth=2`, `nth=1..3`, `every=4`. The first rule
that picks a packet decides. A packet leaves as soon as it has been decided on, before it is parsed, unless a rule has
to know what it says. The medium gives it the addresses of the other side (`Medium.onward`).
"""

import heapq
from dataclasses import dataclass, field, replace

from msgspec import structs

from openmrc.conform.conversation import TapEntry, TestConversation
from openmrc.conform.datagrams import OTHER_SIDE, TapDatagram
from openmrc.conform.language import COUNTING, ScriptCondition, ScriptStep, is_of_kind
from openmrc.conform.matching import matches, refuses
from openmrc.wire.codes import CONGESTED, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, Opcode
from openmrc.wire.headers import STACKS, WITH_PAYLOAD
from openmrc.wire.headers import length as length_of

NS_PER_US = 1_000
_PASS = "pass"
CHANGES = ("mark", "trim", "trim-last")  # what a switch does to a packet that it forwards


@dataclass
class RelayRule:
    """What happens to the packets that a line picks."""

    step: ScriptStep
    picked: int = 0

    def __post_init__(self) -> None:
        """Sort the line into what concerns the packet and what counts."""
        conditions = tuple(each for each in self.step.conditions if each.name not in COUNTING)
        kind = self.step.packet or "ANY"
        self._packets = replace(self.step, subject=kind, conditions=conditions)
        self._plain = [each for each in conditions if not each.value.variable and not each.value.word]
        self._counting = [each for each in self.step.conditions if each.name in ("nth", "every")]
        self._opcodes = frozenset(opcode for opcode in Opcode if is_of_kind(opcode, kind))

    def picks(self, conversation: TestConversation, entry: TapEntry) -> bool:
        """Whether this packet is one of those."""
        datagram = entry.datagram
        if datagram is None or not datagram.body or datagram.body[0] not in self._opcodes:
            return False
        if any(refuses(conversation, each, datagram) for each in self._plain):
            return False  # without parsing it, which takes longer than all else
        if matches(conversation, self._packets, entry) != []:
            return False
        self.picked += 1
        return all(_counts(self.picked, each) for each in self._counting)


def _counts(picked: int, condition: ScriptCondition) -> bool:
    value = condition.value
    if condition.name == "every":
        return picked % value.numbers[0] == 0
    return picked in value.range()


@dataclass
class Relay:
    """The rules in force, and what is held back."""

    conversation: TestConversation
    rules: list[RelayRule] = field(default_factory=list)
    passed: int = 0
    took: list[int] = field(default_factory=list)  # ns from arrival to departure of packets that were not held up
    _delayed: list[tuple[int, int, TapDatagram]] = field(default_factory=list)  # at (ns), order
    _held: list[tuple[int, TapDatagram]] = field(default_factory=list)  # go after so many have passed

    def add(self, step: ScriptStep) -> None:
        """Put a rule in force; `nothing` lifts all of them."""
        if step.subject == "nothing":
            self.rules.clear()
        else:
            self.rules.append(RelayRule(step))

    def next_due(self) -> int | None:
        """Return when a delayed packet is due (ns)."""
        return self._delayed[0][0] if self._delayed else None

    def release_due(self) -> None:
        """Send what was delayed until now."""
        now = self.conversation.medium.now()
        while self._delayed and self._delayed[0][0] <= now:
            self._send(heapq.heappop(self._delayed)[2])

    def serve(self, entry: TapEntry) -> None:
        """Let a packet through, or not."""
        if entry.datagram is None:
            return
        rule = next((each for each in self.rules if each.picks(self.conversation, entry)), None)
        entry.action = rule.step.subject if rule is not None else _PASS
        onward = changed(entry.action, self.conversation.medium.onward(entry.datagram, OTHER_SIDE[entry.side]))
        match entry.action:
            case "drop":
                return
            case "delay" | "mark" if _number(rule, "us", 0):
                due = entry.at + _number(rule, "us", 0) * NS_PER_US
                heapq.heappush(self._delayed, (due, entry.number, onward))
            case "hold":
                self._held.append((self.passed + _number(rule, "n", 1), onward))
                return
            case "duplicate":
                for _ in range(1 + _number(rule, "n", 1)):
                    self._send(onward)
            case _:
                self._send(onward)
                self.took.append(self.conversation.medium.now() - entry.at)
        self.passed += 1
        self._release()

    def _release(self) -> None:
        due = [datagram for after, datagram in self._held if after <= self.passed]
        self._held = [each for each in self._held if each[0] > self.passed]
        for datagram in due:
            self._send(datagram)

    def _send(self, datagram: TapDatagram) -> None:
        self.conversation.medium.send(datagram)


def _number(rule: RelayRule | None, name: str, otherwise: int) -> int:
    value = rule.step.get(name) if rule is not None else None
    return value.numbers[0] if value is not None else otherwise


def changed(action: str, datagram: TapDatagram) -> TapDatagram:
    match action:
        case "mark":
            return structs.replace(datagram, ecn=CONGESTED)
        case "corrupt":
            body, at = datagram.body, len(datagram.body) // 2
            flipped = bytes(each ^ 1 for each in body[at : at + 1])  # nothing of an empty body
            return structs.replace(datagram, body=body[:at] + flipped + body[at + 1 :])
        case "trim":
            return _trimmed(datagram, DSCP_TRIMMED)
        case "trim-last":
            return _trimmed(datagram, DSCP_TRIMMED_LASTHOP)
    return datagram


def _trimmed(datagram: TapDatagram, dscp: int) -> TapDatagram:
    """Cut a write behind its headers, as a switch does; other packets pass as they are."""
    stacks = {bytes([opcode]): headers for opcode, headers in STACKS.items() if opcode in WITH_PAYLOAD}
    stack = stacks.get(datagram.body[:1])
    return datagram if stack is None else structs.replace(datagram, body=datagram.body[: length_of(stack)], dscp=dscp)
