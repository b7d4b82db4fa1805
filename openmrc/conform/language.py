"""The language of conformance tests: lines that inject, expect and command, in the manner of packetdrill.

A file holds tests. Each begins with a line `test ID CLAUSE LEVEL PART`, where PART is what the device under test plays:
`responder`, `requester` or `both` (two devices, the tester relays between them). Indented lines up to the first step
are its description; `device` names options of `Wanted`. Steps follow, one a line:

    [TIME] > PACKET fields        inject: TIME is waited first
    [TIME] < PACKET conditions    expect: such a packet arrives within TIME since the step before (1 s by default)
    [TIME] ! PACKET conditions    no such packet arrives within TIME, or has arrived
    [TIME] * command fields       have the device do something: write, port, reset, profile; wait
    [TIME] * completes conditions what an application of the device sees: completes, receives; memory
    [TIME] ! completes            an application of the device sees no such thing within TIME
    ? PACKET conditions count=N   how many such packets have come in all
    : action PACKET conditions    relay rule: drop, trim, trim-last, mark, delay, duplicate, hold, corrupt, nothing
    = property                    judge everything seen so far, see `judging.properties`

TIME is `+0`, `+5ms` or `+5ms..20ms`: not before, not after. Conditions are `name=value` with =, !=, <, <=, > or >=.
Values are numbers, `a..b` (inject: one packet each; expect: in the range), `a,b,c`, words, and `$name`, optionally
plus or minus a number: bound where it is first seen, compared afterwards. PSNs count from the first of the requester,
addresses from the start of the region. `$key` is its R_Key, `$device` the QPN of the device, `$qpn`
the tester's and `$context` the low 16 bits of that. `pair=1` is the second of several queue pairs (`device pairs=2`),
whose PSNs begin as those of the first. `#` begins a comment.
"""

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum

from openmrc.conform.datagrams import DSCP_BITS
from openmrc.conform.devices.contract import LARGEST_WRITE, MOST_WRITES, PERIOD, Wanted
from openmrc.core.serial import PSN_BITS
from openmrc.engine.state.tables import WcStatus
from openmrc.errors import ConfigError
from openmrc.wire.codes import NackReason, Opcode, Syndrome
from openmrc.wire.headers import WITH_PAYLOAD, stack

DEFAULT_PATIENCE = 1_000_000_000  # ns that an expectation without a time waits
ACTIONS = ("drop", "trim", "trim-last", "mark", "delay", "duplicate", "hold", "corrupt", "nothing")
COMMANDS = ("write", "port", "wait", "reset", "profile")
EVENTS = ("completes", "receives")
REPORTS = (*EVENTS, "memory")
PSN_FIELDS = ("psn", "cack_psn", "nack_psn")  # counted from the first of the requester
COUNT = "count"  # of a line with ?
COUNTING = ("nth", "every", "us", "n")  # fields of relay rules that are not of the packet
LASTHOP = 2  # of `trim`
PACKETS = ("WRITE", "ANY", "ANSWER", *Opcode.__members__)  # what a line may name as its packet


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
    line: int
    text: str
    kind: str  # > < ! ? * : =
    subject: str  # opcode, command, report, action or property
    packet: str = ""  # of a relay rule: which packets
    conditions: tuple[ScriptCondition, ...] = ()
    earliest: int = 0  # ns after the step before
    latest: int | None = None  # ns; None: no time was given
    place: str = ""  # file and line

    def get(self, name: str) -> ScriptValue | None:
        """Return the value that a field is set to; None if it is not."""
        return next((each.value for each in self.conditions if each.name == name and each.sign == "="), None)


@dataclass(frozen=True)
class ScriptTest:
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


@dataclass(frozen=True)
class FieldForm:
    """What may stand behind the name of a field."""

    numbers: range
    words: type[IntEnum] | tuple[str, ...] = ()
    many: str = ".."  # how several numbers are written, if they may be: a range, or with commas
    takes_variables: bool = False

    def __str__(self) -> str:
        bounds = [f"{self.numbers.start}..{self.numbers.stop - 1}"] if self.numbers.stop else []
        return " or ".join([*bounds, *self.names()])

    def names(self) -> Iterable[str]:
        return self.words if isinstance(self.words, tuple) else self.words.__members__


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


def each_packet(step: ScriptStep) -> Iterator[dict[str, ScriptValue]]:
    """Yield the fields of each packet that an injection stands for: ranges are one packet for each number."""
    fields = {each.name: each.value for each in step.conditions}
    ranged = [name for name, value in fields.items() if value.upto is not None]
    if not ranged:
        yield fields
        return
    for numbers in zip(*(fields[name].range() for name in ranged), strict=True):
        yield fields | {name: ScriptValue(str(number), (number,)) for name, number in zip(ranged, numbers, strict=True)}


_BIT = FieldForm(range(2))
_PSN = range(1 - (1 << PSN_BITS), 1 << PSN_BITS)
_RELATIVE = dict.fromkeys(PSN_FIELDS, _PSN) | {"va": range(-(1 << 63), 1 << 64)}  # from where the script counts
_WORDS_OF: dict[str, type[IntEnum]] = {"nack_reason": NackReason, "syndrome": Syndrome}
_NUMBER, _OFFSET, _PAYLOAD = range(1 << 32), range(1 << 24), range((1 << 15) + 1)
_WRITES = tuple(opcode for opcode in Opcode if opcode <= Opcode.WRITE_ONLY_IMM)


def number_of(word: str, name: str) -> int:
    named: type[IntEnum] | None = WcStatus if name == "status" else _WORDS_OF.get(name.rpartition(".")[2])
    return int(named[word]) if named is not None else LASTHOP if word == "lasthop" else 1


def forms(step: ScriptStep, wanted: Wanted, part: PartOfDevice) -> dict[str, FieldForm]:
    """Return what the fields of a line may hold, by their names, in a test of this part with these options."""
    side = FieldForm(range(2 if part == PartOfDevice.BOTH else 1))
    common = {"side": side, "pair": FieldForm(range(wanted.pairs))}
    match step.kind, step.subject:
        case ">", _:
            return _injected(step.subject, wanted) | {"pair": common["pair"]}
        case _, "completes" | "receives":
            number = FieldForm(_NUMBER, takes_variables=True)
            return common | {"status": FieldForm(range(256), WcStatus), "immediate": number, "length": number}
        case "*", "memory":
            return common | {"offset": FieldForm(range(wanted.bytes)), "fill": FieldForm(range(PERIOD), many="")}
        case "*", _:
            return _commanded(step.subject, wanted, common)
        case ":", _:
            return _expected(step.packet or "ANY", wanted) | common | _counted(step.subject)
        case "?", _:
            return _expected(step.subject, wanted) | common | {COUNT: FieldForm(_NUMBER, takes_variables=True)}
        case _:
            return _expected(step.subject, wanted) | common


def _commanded(command: str, wanted: Wanted, common: dict[str, FieldForm]) -> dict[str, FieldForm]:
    match command:
        case "write":
            numbers = {
                "length": range(LARGEST_WRITE + 1),
                "offset": _OFFSET,
                "fill": range(PERIOD),
                "immediate": _NUMBER,
                "count": range(1, MOST_WRITES + 1),
            }
            return common | {name: FieldForm(each, many="") for name, each in numbers.items()}
        case "port":
            return {"side": common["side"], "plane": FieldForm(range(wanted.planes), many=""), "up": _BIT}
        case "profile":
            many = {
                "widths": _NUMBER,
                "field": _NUMBER,
                "evs": range(1 << 16),
                "denied": range(wanted.planes * wanted.evs),
            }
            return {
                **{name: FieldForm(each, many=",") for name, each in many.items()},
                **dict.fromkeys(("count", "min_active"), FieldForm(_NUMBER, many="")),
                "mode": FieldForm(range(0), ("auto", "explicit", "generated")),
                "refused": FieldForm(range(0), tuple(errno.errorcode.values())),
            }
        case _:
            return {}


def _counted(action: str) -> dict[str, FieldForm]:
    every = FieldForm(range(1, 1 << 24), many="")
    return {
        "nth": FieldForm(every.numbers),
        "every": every,
        **({"us": FieldForm(_OFFSET, many="")} if action in ("delay", "mark") else {}),
        **({"n": FieldForm(range(1, 1 << 10), many="")} if action in ("hold", "duplicate") else {}),
    }


def _injected(packet: str, wanted: Wanted) -> dict[str, FieldForm]:
    """Return the forms of the fields of a packet that the tester makes."""
    ports = {"plane": range(wanted.planes), "ev": range(wanted.planes * wanted.evs)}
    other = {"cut": range(1 << 16), "grow": range(1 << 10), "dscp": range(1 << DSCP_BITS), "ecn": range(4)}
    found = _of_headers(packet) | {name: FieldForm(each) for name, each in (ports | other).items()}
    found |= {"reserved": _BIT, "stranger": _BIT, "bad": FieldForm(range(2), ("icrc",))}
    found["trim"] = FieldForm(range(LASTHOP + 1), ("lasthop",))
    if packet == "SACK":
        found |= {"acked": FieldForm(_PSN, many=","), "trigger": FieldForm(_PSN)}
    elif packet == "WRITE" or Opcode[packet] in WITH_PAYLOAD:
        longest = range(LARGEST_WRITE + 1) if packet == "WRITE" else _PAYLOAD
        found |= {"length": FieldForm(longest), "offset": FieldForm(_OFFSET), "fill": FieldForm(range(PERIOD))}
    return found


def _expected(packet: str, wanted: Wanted) -> dict[str, FieldForm]:
    """Return the forms of what a condition compares, of packets that arrive."""
    other = {
        "plane": range(wanted.planes), "ev": range(1 << 16), "dscp": range(1 << DSCP_BITS), "ecn": range(4),
        "size": range(1 << 16), "length": range(1 << 16), "icrc": range(2),
    }  # fmt: skip
    found = _of_headers(packet) | {name: FieldForm(each, takes_variables=True) for name, each in other.items()}
    if is_of_kind(Opcode.SACK, packet):
        found |= {"acked": FieldForm(_PSN, many=","), "trigger": FieldForm(_PSN, takes_variables=True)}
    return found


def _of_headers(packet: str) -> dict[str, FieldForm]:
    """Return the forms of the fields of a packet's headers, each also behind the header's name."""
    found: dict[str, FieldForm] = {}
    headers = [header for opcode in Opcode if is_of_kind(opcode, packet) for header in stack(opcode, timestamped=True)]
    for header in headers:
        for field in header.fields:
            numbers = range(-(1 << field.width - 1) if field.signed else 0, 1 << field.width)
            words = _WORDS_OF.get(field.name, ())
            found[f"{header.name}.{field.name}"] = FieldForm(numbers, words, takes_variables=True)
            before = found.get(field.name)
            numbers = _RELATIVE.get(field.name, numbers)
            if before is None or numbers.stop > before.numbers.stop:
                found[field.name] = FieldForm(numbers, words, takes_variables=True)
    return found
