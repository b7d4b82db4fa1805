"""The language of conformance tests: lines that inject, expect and command, in the manner of packetdrill.

A file holds tests. Each begins with a line `test ID CLAUSE LEVEL PART`, where PART is what the device under test plays:
`responder`, `requester` or `both` (two devices, the tester relays between them). Indented lines up to the first step
are its description; `device` names options of `Wanted`. Steps follow, one a line:

    [TIME] > PACKET fields        inject: TIME is waited first
    [TIME] < PACKET conditions    expect: such a packet arrives within TIME since the step before (1 s by default)
    TIME   ! PACKET conditions    no such packet arrives within TIME
    [TIME] * command fields       have the device do something: write, port, reset, profile; wait
    [TIME] * completes conditions what an application of the device sees: completes, receives; memory
    TIME   ! completes            an application of the device sees no such thing within TIME
    : action PACKET conditions    relay rule: drop, trim, trim-last, mark, delay, duplicate, hold, corrupt, nothing
    = property                    judge everything seen so far, see `judging.properties`

TIME is `+0`, `+5ms` or `+5ms..20ms`: not before, not after. Conditions are `name=value` with =, !=, <, <=, > or >=.
Values are numbers, `a..b` (inject: one packet each; expect: in the range), `a,b,c`, words, and `$name`, optionally
plus or minus a number: bound where it is first seen, compared afterwards. PSNs count from the first of the requester,
addresses from the start of the region. `$key` is its R_Key, `$device` the QPN of the device, `$qpn`
the tester's and `$context` the low 16 bits of that. `pair=1` is the second of several queue pairs (`device pairs=2`),
whose PSNs begin as those of the first. `#` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from openmrc.conform.devices.contract import Wanted
from openmrc.errors import ConfigError
from openmrc.wire.codes import Opcode

DEFAULT_PATIENCE = 1_000_000_000  # ns that an expectation without a time waits
_UNITS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}  # ns
_TIME = re.compile(r"\+(\d+(?:\.\d+)?)(us|ms|s)?(?:\.\.(\d+(?:\.\d+)?)(us|ms|s))?$")
_CONDITION = re.compile(r"(?P<name>[a-z_][\w.]*)(?P<sign>!=|<=|>=|=|<|>)(?P<value>\S+)$")
_VALUE = re.compile(r"(?:\$(?P<variable>\w+))?(?P<number>[+-]?(?:0x[0-9a-fA-F]+|\d+))?$")
_WRITES = "WRITE"  # any write, or a message cut into packets
ACTIONS = ("drop", "trim", "trim-last", "mark", "delay", "duplicate", "hold", "corrupt", "nothing")
COMMANDS = ("write", "port", "wait", "reset", "profile")
REPORTS = ("completes", "receives", "memory")


class Level(Enum):
    """How binding a test is."""

    MUST = "must"  # published as a requirement, or what follows from the formats
    SHOULD = "should"  # published as a recommendation, or by one reader only
    INFO = "info"  # public sources are silent: what the device does is reported


class PartOfDevice(Enum):
    """What the device under test plays."""

    RESPONDER = "responder"
    REQUESTER = "requester"
    BOTH = "both"


class ScriptError(ConfigError):
    """A test script is invalid; the text names file, line and what is wrong."""


@dataclass(frozen=True)
class ScriptValue:
    """A number, a range, a list, a word or a variable."""

    text: str
    numbers: tuple[int, ...] = ()  # one, or those of a list
    upto: int | None = None  # end of a range from numbers[0]
    variable: str = ""
    word: str = ""

    def range(self) -> range:
        """Return the numbers from the first to the last of a range, up or down; one number is a range of one."""
        first = self.numbers[0]
        last = first if self.upto is None else self.upto
        return range(first, last + 1) if last >= first else range(first, last - 1, -1)


@dataclass(frozen=True)
class ScriptCondition:
    """`name=value`."""

    name: str
    sign: str
    value: ScriptValue

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.value.text}"


@dataclass(frozen=True)
class ScriptStep:
    """One line of a script."""

    line: int
    text: str
    kind: str  # > < ! * : =
    subject: str  # opcode, command, report, action or property
    packet: str = ""  # of a relay rule: which packets
    conditions: tuple[ScriptCondition, ...] = ()
    earliest: int = 0  # ns after the step before
    latest: int | None = None  # ns; None: no time was given

    def get(self, name: str) -> ScriptValue | None:
        """Return the value that a field is set to; None if it is not."""
        return next((each.value for each in self.conditions if each.name == name and each.sign == "="), None)


@dataclass(frozen=True)
class ScriptTest:
    """One test."""

    id: str  # section and number: "7.5.2/1"
    clause: str  # id in the register of clauses
    level: Level
    part: PartOfDevice
    about: str
    wanted: Wanted
    steps: tuple[ScriptStep, ...]
    source: str  # file and line
    text: str  # the steps as written

    @property
    def trims(self) -> bool:
        """Whether the tester trims packets towards a device."""
        return any(step.subject in ("trim", "trim-last") or step.get("trim") is not None for step in self.steps)


def parse_tests(text: str, name: str) -> list[ScriptTest]:
    """Return the tests of a file; raise ScriptError."""
    tests: list[ScriptTest] = []
    block: list[tuple[int, str]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].rstrip()
        if line.startswith("test "):
            if block:
                tests.append(_test(block, name))
            block = []
        if line and (block or line.startswith("test ")):
            block.append((number, line))
        elif line:
            raise ScriptError(f"{name}:{number}: {line.strip()!r} before the first test")
    return [*tests, _test(block, name)] if block else tests


def _test(block: list[tuple[int, str]], name: str) -> ScriptTest:
    number, head = block[0]
    words = head.split()
    try:
        _, test_id, clause, level, part = words
        found_level, found_part = Level(level), PartOfDevice(part)
    except ValueError:
        raise ScriptError(f"{name}:{number}: expected `test ID CLAUSE LEVEL PART`, not {head!r}") from None
    about: list[str] = []
    steps: list[ScriptStep] = []
    wanted: dict[str, int] = {}
    for at, line in block[1:]:
        stripped = line.strip()
        if line.startswith("    ") and not steps and stripped[0] not in "+><!*:=":
            if stripped.startswith("device "):
                wanted |= _options(stripped.split()[1:], f"{name}:{at}")
            else:
                about.append(stripped)
        else:
            steps.append(_step(at, stripped, name))
    if not about or not steps:
        raise ScriptError(f"{name}:{number}: test {test_id} lacks a description or steps")
    body = "\n".join(step.text for step in steps)
    return ScriptTest(
        test_id,
        clause,
        found_level,
        found_part,
        " ".join(about),
        _wanted(wanted, f"{name}:{number}"),
        tuple(steps),
        f"{name}:{number}",
        body,
    )


def _options(words: list[str], place: str) -> dict[str, int]:
    found = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in Wanted.__struct_fields__ or not value:
            raise ScriptError(f"{place}: {word!r} is not an option of a device: {', '.join(Wanted.__struct_fields__)}")
        found[key] = int(value, 0)
    return found


def _wanted(options: dict[str, int], place: str) -> Wanted:
    try:
        flags = {key: bool(value) for key, value in options.items() if key in ("writable", "dynamic_mpr", "trim_nack")}
        return Wanted(**{**options, **flags})  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ScriptError(f"{place}: {error}") from None


def _step(number: int, line: str, name: str) -> ScriptStep:
    place = f"{name}:{number}"
    words = line.split()
    earliest, latest = _time(words.pop(0), place) if words[0].startswith("+") else (0, None)
    if len(words) < 2 or words[0] not in tuple("><!*:="):
        raise ScriptError(f"{place}: {line!r} is not a step")
    kind, subject = words[0], words[1]
    rest, packet = words[2:], ""
    if kind == ":":
        packet, rest = (rest[0], rest[1:]) if rest and not _CONDITION.match(rest[0]) else ("", rest)
    conditions = tuple(_condition(word, place) for word in rest)
    _check(kind, subject, packet, place)
    if latest is None and (kind in "<!" or subject in REPORTS):  # a single time is a limit here, there a pause
        earliest, latest = 0, earliest or None
    return ScriptStep(number, line, kind, subject, packet, conditions, earliest, latest)


def _check(kind: str, subject: str, packet: str, place: str) -> None:
    allowed: tuple[str, ...]
    match kind:
        case ">" | "<" | "!":
            allowed = (*_packets(), *(REPORTS if kind == "!" else ()))
        case "*":
            allowed = (*COMMANDS, *REPORTS)
        case ":":
            allowed = ACTIONS
            if packet and packet not in _packets():
                raise ScriptError(f"{place}: {packet!r} is not a packet: {', '.join(_packets())}")
        case _:
            return
    if subject not in allowed:
        raise ScriptError(f"{place}: {subject!r} is not one of {', '.join(allowed)}")


def _packets() -> tuple[str, ...]:
    return (_WRITES, "ANY", "ANSWER", *(opcode.name for opcode in Opcode))


def is_of_kind(opcode: Opcode, name: str) -> bool:
    """Whether an opcode is of the kind that a script names: itself, WRITE for any write, ANSWER for its answers."""
    is_write = opcode <= Opcode.WRITE_ONLY_IMM
    match name:
        case "ANY" | "":
            return True
        case "WRITE":
            return is_write
        case "ANSWER":
            return opcode in (Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE)
        case _:
            return opcode.name == name


def _time(word: str, place: str) -> tuple[int, int | None]:
    found = _TIME.match(word)
    if found is None:
        raise ScriptError(f"{place}: {word!r} is not a time such as +5ms or +5ms..20ms")
    first, unit, second, last_unit = found.groups()
    unit = unit or last_unit
    if unit is None and float(first) != 0:
        raise ScriptError(f"{place}: {word!r} lacks a unit: us, ms or s")
    begin = round(float(first) * _UNITS[unit or "s"])
    return begin, round(float(second) * _UNITS[last_unit]) if second else None


def _condition(word: str, place: str) -> ScriptCondition:
    found = _CONDITION.match(word)
    if found is None:
        raise ScriptError(f"{place}: {word!r} is not a condition such as psn=0")
    return ScriptCondition(found["name"], found["sign"], _value(found["value"], place))


def _value(text: str, place: str) -> ScriptValue:
    if ".." in text:
        first, _, last = text.partition("..")
        return ScriptValue(text, (int(first, 0),), int(last, 0))
    if "," in text:
        return ScriptValue(text, tuple(int(each, 0) for each in text.split(",") if each))
    found = _VALUE.match(text)
    if found is not None and text:
        return ScriptValue(text, (int(found["number"] or "0", 0),), None, found["variable"] or "")
    if not re.match(r"[A-Za-z][\w-]*$", text):
        raise ScriptError(f"{place}: {text!r} is not a value")
    return ScriptValue(text, word=text)


def each_packet(step: ScriptStep) -> Iterator[dict[str, ScriptValue]]:
    """Yield the fields of each packet that an injection stands for: ranges are one packet for each number."""
    fields = {each.name: each.value for each in step.conditions}
    ranged = [name for name, value in fields.items() if value.upto is not None]
    if not ranged:
        yield fields
        return
    for numbers in zip(*(fields[name].range() for name in ranged), strict=True):
        yield fields | {name: ScriptValue(str(number), (number,)) for name, number in zip(ranged, numbers, strict=True)}
