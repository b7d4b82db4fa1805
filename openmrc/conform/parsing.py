"""Read scripts: from the text of a file to tests whose every line can run, or to the mistake and its place.

What a line says is checked here against the forms of its fields, so that a mistake of a script is never held against
a device.
"""

import re
from collections.abc import Iterable
from itertools import groupby

import msgspec

from openmrc.conform.devices.contract import Wanted
from openmrc.conform.language import (
    ACTIONS,
    COMMANDS,
    COUNT,
    EVENTS,
    PACKETS,
    REPORTS,
    FieldForm,
    Level,
    PartOfDevice,
    ScriptCondition,
    ScriptError,
    ScriptStep,
    ScriptTest,
    ScriptValue,
    forms,
)
from openmrc.wire.codes import Opcode

KEY = "key"  # variable with the R_Key of the responder's region
QPN, CONTEXT = "qpn", "context"  # variables with the tester's QPN, and its low 16 bits
DEVICE = "device"  # variable with the QPN of the device, the first of two
GIVEN = (KEY, QPN, CONTEXT, DEVICE)
_UNITS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}  # ns
_LONGEST_TIME = 3600 * _UNITS["s"]
_TIME = re.compile(r"\+(\d+(?:\.\d+)?)(us|ms|s)?(?:\.\.(\d+(?:\.\d+)?)(us|ms|s))?$")
_CONDITION = re.compile(r"(?P<name>[a-z_][\w.]*)(?P<sign>!=|<=|>=|=|<|>)(?P<value>\S+)$")
_VALUE = re.compile(r"(?:\$(?P<variable>\w+))?(?P<number>[+-]?(?:0x[0-9a-fA-F]+|\d+))?$")
_NEEDED = {"port": ("plane", "up"), "profile": ("mode",), "delay": ("us",)}


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
    place = f"{name}:{number}"
    try:
        _, test_id, clause, level, part = head.split()
        found_level, found_part = Level(level), PartOfDevice(part)
    except ValueError:
        levels, parts = ("|".join(str(each.value) for each in kind) for kind in (Level, PartOfDevice))
        raise ScriptError(f"{place}: expected `test ID CLAUSE {levels} {parts}`, not {head!r}") from None
    about: list[str] = []
    steps: list[ScriptStep] = []
    options: list[str] = []
    for at, line in block[1:]:
        stripped = line.strip()
        if line.startswith("    ") and not steps and stripped[0] not in "+><!?*:=":
            if stripped.split()[0] == "device":
                options += stripped.split()[1:]
                wanted_at = f"{name}:{at}"
                _wanted(options, wanted_at)
            else:
                about.append(stripped)
        else:
            steps.append(_step(at, stripped, f"{name}:{at}"))
    if not about or not steps:
        raise ScriptError(f"{place}: test {test_id} lacks a description or steps")
    wanted, text = _wanted(options, place), "\n".join(step.text for step in steps)
    _check_all(steps, wanted, found_part)
    return ScriptTest(test_id, clause, found_level, found_part, " ".join(about), wanted, tuple(steps), place, text)


def _wanted(words: list[str], place: str) -> Wanted:
    found: dict[str, int] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in Wanted.__struct_fields__ or not value or key in found:
            names = ", ".join(Wanted.__struct_fields__)
            raise ScriptError(f"{place}: {word!r} is not an option of a device, once each of {names}")
        found[key] = _number(value, place)
    flags = {key: bool(value) for key, value in found.items() if isinstance(getattr(Wanted(), key), bool)}
    if wrong := [key for key in flags if found[key] not in (0, 1)]:
        raise ScriptError(f"{place}: {wrong[0]} is {found[wrong[0]]}, not 0 or 1")
    try:
        return msgspec.structs.replace(Wanted(), **(found | flags))
    except ValueError as error:
        raise ScriptError(f"{place}: {error}") from None


def _step(number: int, line: str, place: str) -> ScriptStep:
    words = line.split()
    time = words.pop(0) if words[0].startswith("+") else ""
    if len(words) < 2 or words[0] not in tuple("><!?*:="):
        raise ScriptError(f"{place}: {line!r} is not a step: [TIME] then one of > < ! ? * : = and what it is about")
    kind, subject = words[0], words[1]
    rest, packet = words[2:], ""
    if kind == ":":
        packet, rest = (rest[0], rest[1:]) if rest and not _CONDITION.match(rest[0]) else ("", rest)
    _check_subject(kind, subject, packet, place)
    earliest, latest = _time(time, place) if time else (0, None)
    if latest is None and (kind in "<!" or subject in REPORTS):  # a single time is a limit here, there a pause
        earliest, latest = 0, earliest or None
    elif time and (kind in "=?" or (latest is not None and kind not in "<!" and subject not in REPORTS)):
        raise ScriptError(f"{place}: a line with {kind} {subject} takes no such time as {time}")
    conditions = tuple(_condition(word, place) for word in rest)
    return ScriptStep(number, line, kind, subject, packet, conditions, earliest, latest, place)


def _check_subject(kind: str, subject: str, packet: str, place: str) -> None:
    crafted = "WRITE", *Opcode.__members__
    allowed = {
        ">": crafted, "<": PACKETS, "!": (*PACKETS, *EVENTS), "*": (*COMMANDS, *REPORTS), ":": ACTIONS,
        "=": (subject,), "?": PACKETS,
    }[kind]  # fmt: skip
    if subject not in allowed:
        raise ScriptError(f"{place}: {subject!r} is not one of {', '.join(allowed)}")
    if packet and (subject == "nothing" or packet not in PACKETS):
        names = "nothing, since this lifts all rules" if subject == "nothing" else ", ".join(PACKETS)
        raise ScriptError(f"{place}: {packet!r} is not a packet: {names}")


def _time(word: str, place: str) -> tuple[int, int | None]:
    found = _TIME.match(word)
    if found is None:
        raise ScriptError(f"{place}: {word!r} is not a time such as +5ms or +5ms..20ms")
    first, unit, second, last_unit = found.groups()
    unit = unit or last_unit
    if unit is None and float(first) != 0:
        raise ScriptError(f"{place}: {word!r} lacks a unit: us, ms or s")
    begin = round(float(first) * _UNITS[unit or "s"])
    end = round(float(second) * _UNITS[last_unit]) if second else None
    if not begin <= (begin if end is None else end) <= _LONGEST_TIME:
        raise ScriptError(f"{place}: {word!r} ends before it begins, or is longer than an hour")
    return begin, end


def _condition(word: str, place: str) -> ScriptCondition:
    found = _CONDITION.match(word)
    if found is None:
        raise ScriptError(f"{place}: {word!r} is not a condition such as psn=0")
    return ScriptCondition(found["name"], found["sign"], _value(found["value"], place))


def _value(text: str, place: str) -> ScriptValue:
    if ".." in text:
        first, _, last = text.partition("..")
        return ScriptValue(text, (_number(first, place, text),), _number(last, place, text))
    if "," in text:
        return ScriptValue(text, tuple(_number(each, place, text) for each in text.split(",")))
    found = _VALUE.match(text)
    if found is not None:
        return ScriptValue(text, (_number(found["number"] or "0", place),), None, found["variable"] or "")
    if not re.match(r"[A-Za-z][\w-]*$", text):
        raise ScriptError(f"{place}: {text!r} is not a value: a number, a..b, a,b,c, a word or $name")
    return ScriptValue(text, word=text)


def _number(text: str, place: str, whole: str = "") -> int:
    try:
        return int(text, 0)
    except ValueError:
        within = f" in {whole!r}" if whole else ""
        raise ScriptError(f"{place}: {text!r}{within} is not a number such as 12 or 0xC") from None


# What the fields of a line may hold


def _check_all(steps: Iterable[ScriptStep], wanted: Wanted, part: PartOfDevice) -> None:
    """Raise ScriptError at the first line that cannot run in a test of this part with these options."""
    bound = set(GIVEN)
    for step in steps:
        if step.kind == ":" and part != PartOfDevice.BOTH:
            raise ScriptError(f"{step.place}: only tests of two devices (`both`) have relay rules")
        _check_names(step, forms(step, wanted, part))
        binds = step.kind in "<:" or (step.kind == "*" and step.subject in EVENTS)
        for each in step.conditions:
            variable = each.value.variable
            counts = step.kind == "?" and each.name == COUNT
            if variable and variable not in bound and not ((binds or counts) and each.sign == "="):
                raise ScriptError(f"{step.place}: ${variable} has no value yet: {', '.join(sorted(bound))} have one")
            bound |= {variable} if variable else set()


def _check_names(step: ScriptStep, allowed: dict[str, FieldForm]) -> None:
    if step.kind == "=" or step.subject == "nothing":
        allowed = {}
    sets = step.kind == ">" or (step.kind == "*" and step.subject not in EVENTS)
    for name, given in groupby(sorted(step.conditions, key=lambda each: each.name), key=lambda each: each.name):
        found = list(given)
        if name not in allowed:
            raise ScriptError(f"{step.place}: {step.subject} has no {name!r}: {', '.join(allowed) or 'no fields'}")
        if len(found) > 1 and sets and name != "field":
            raise ScriptError(f"{step.place}: {name} is there {len(found)} times: it takes one value")
        for each in found:
            if sets and each.sign != "=":
                raise ScriptError(f"{step.place}: {each} sets nothing: {name}={each.value.text}")
            _check_value(step, each, allowed[name])
    names = {each.name for each in step.conditions}
    needed = (COUNT,) if step.kind == "?" else _NEEDED.get(step.subject, ())
    if missing := [name for name in needed if name not in names]:
        raise ScriptError(f"{step.place}: {step.subject} lacks {missing[0]}={allowed[missing[0]]}")
    _check_denied(step)
    ranges = {len(each.value.range()) for each in step.conditions if each.value.upto is not None}
    if step.kind == ">" and len(ranges) > 1:
        raise ScriptError(f"{step.place}: its ranges have {sorted(ranges)} numbers: each must have as many")


def _check_denied(step: ScriptStep) -> None:
    """Raise ScriptError if an EV is denied that a profile of so many does not have."""
    denied, evs, count = step.get("denied"), step.get("evs"), step.get("count")
    many = len(evs.numbers) if evs is not None else count.numbers[0] if count is not None else 0
    if denied is not None and max(denied.numbers) >= many:
        raise ScriptError(f"{step.place}: denied={denied.text} names an EV that is not there: the profile has {many}")


def _check_value(step: ScriptStep, condition: ScriptCondition, form: FieldForm) -> None:
    value = condition.value
    several = ".." if value.upto is not None else "," if len(value.numbers) > 1 else ""
    numbers = () if value.variable else value.numbers if value.upto is None else (*value.numbers, value.upto)
    is_right = (value.word in form.names() if value.word else all(each in form.numbers for each in numbers)) and (
        not value.variable or form.takes_variables
    )
    if not is_right or several not in ("", form.many):
        also = {"..": ", or a range", ",": ", or several with commas", "": ""}[form.many]
        raise ScriptError(f"{step.place}: {condition} is not possible: {condition.name} takes {form}{also}")
    if several and condition.sign not in ("=", "!="):
        raise ScriptError(f"{step.place}: {condition} compares with several numbers: write = or !=")
