"""What a complaint about a YAML file says besides: the choices there are, the nearest of them, patterns in words."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import inspect

_PLACE = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_GLUED = re.compile(r"([A-Za-z_]\w*):(\S.*)")
_INVALID = re.compile(r"Invalid (?:enum )?value '?([^' ]+)'?")
_PATTERN = re.compile(r"matching regex '.*?'(?= - at |$)")
_SHAPE = re.compile(r"Expected `(array|object)[^`]*`, got `")
_NUMBER = re.compile(r"Expected `(?:int|float)`, got `str`")
_IN_WORDS = (("(B|kB", "a size such as 2MB, 64KiB or 4096 (bytes)"), ("(ps|ns", "a time such as 50us, 1.5ms or 2s"))
MOST_CHOICES = 40
LONGEST_SHOWN = 60  # characters of a value
_SHAPES = {
    "array": "expected a list; begin each entry with '- ', or write [...] around them",
    "object": "expected keys with values, such as {key: value}",
}
_UNITS = {"gbps": "Gb/s", "ns": "ns", "us": "us", "kb": "kB", "m": "m", "hours": "hours"}  # by the end of a key


def explained(message: str, data: Any, kind: type) -> str:
    """Return msgspec's message about `data`, which should be a `kind`, with what is allowed there."""
    message = _PATTERN.sub(_pattern_in_words, message)
    place = _PLACE.search(message)
    steps = _STEP.findall(place.group(1)) if place else []
    if match := _UNKNOWN.search(message):
        return message + (_without_colon(match[1]) or _choices(match[1], _fields(kind, data, steps)))
    if match := _INVALID.search(message):
        return message + _choices(match[1], _values(kind, data, steps))
    if data is None:
        return f"nothing in it; expected a mapping with {', '.join(_required(kind))}"
    choices = _values(kind, data, steps) if steps and "got `" in message else []
    if choices:
        return _with_value(message, data, steps) + _choices("", choices)
    remedy = _shape(message) or _number(data, steps, message) or _amount(kind, data, steps, message)
    return _with_value(message + remedy, data, steps)


def _without_colon(key: str) -> str:
    """Return what to write for `key value` or `key:value` within braces, which YAML takes for a key alone."""
    if match := _GLUED.fullmatch(key):
        return f"; it has no space behind its colon: write {match[1]}: {match[2]}"
    name, space, value = key.partition(" ")
    return f"; it has no colon: write {name}: {value.strip()}" if space and name.isidentifier() else ""


def _shape(message: str) -> str:
    """Return how a list or mapping is written, if something else stands where one is expected."""
    match = _SHAPE.search(message)
    return f"; {_SHAPES[match[1]]}" if match else ""


def _number(data: Any, steps: list[tuple[str, str]], message: str) -> str:
    """Return how a number is written, if text such as `100G` stands where one is expected."""
    if not _NUMBER.search(message) or not steps:
        return ""
    for key, index in steps:
        data = _below(data, key, index)
    unit = _UNITS.get(steps[-1][0].rpartition("_")[2], "")
    number = re.fullmatch(r"([-+]?\d+(?:\.\d+)?) *([a-zA-Z%]?)\S*", str(data))
    is_plain = number is not None and unit[:1].lower() == number[2].lower()  # its unit is that of the key
    return f"; write {number[1] if number and is_plain else 'a number'}" + (f", in {unit}" if unit else "")


def _amount(kind: type, data: Any, steps: list[tuple[str, str]], message: str) -> str:
    """Return what a time or size looks like, if a number or another type is where one is expected."""
    if "got `" not in message:
        return ""
    patterns = [found.pattern or "" for found in _at(kind, data, steps) if isinstance(found, inspect.StrType)]
    words = next((words for sign, words in _IN_WORDS for pattern in patterns if sign in pattern), None)
    return f"; expected {words}" if words else ""


def _required(kind: type) -> list[str]:
    """Return the fields that a document must have."""
    found = inspect.type_info(kind)
    return [each.encode_name for each in found.fields if each.required] if isinstance(found, inspect.StructType) else []


def _with_value(message: str, data: Any, steps: list[tuple[str, str]]) -> str:
    """Return the message with the value that is refused, if it is short and not named yet."""
    for key, index in steps:
        data = _below(data, key, index)
    expected, at, place = message.partition(" - at `")
    if isinstance(data, (Mapping, list)) or data is None:
        return message
    return f"{expected}{' ' if ', got `' in expected else ', got '}{_shown(data)}{at}{place}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _pattern_in_words(match: re.Match[str]) -> str:
    words = next((words for sign, words in _IN_WORDS if sign in match[0]), None)
    return f"that is {words}" if words else match[0]


def _choices(given: str, known: list[str]) -> str:
    if not known or len(known) > MOST_CHOICES:
        return ""
    near = get_close_matches(given, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ";"
    if not near and "settings" in known:
        hint = f"; a setting belongs below settings: {{{given}: ...}}."
    return f"{hint} Known are {', '.join(known)}"


def _fields(kind: type, data: Any, steps: list[tuple[str, str]]) -> list[str]:
    for found in _at(kind, data, steps):
        if isinstance(found, inspect.StructType):
            tag = [str(found.tag_field)] if found.tag_field else []
            return tag + [field.encode_name for field in found.fields]
    return []


def _values(kind: type, data: Any, steps: list[tuple[str, str]]) -> list[str]:
    """Return the words that are allowed at a place: of a choice, or the kinds of a mapping."""
    values: list[str] = []
    for found in _at(kind, data, steps):
        if isinstance(found, inspect.LiteralType):
            values += map(str, found.values)
        elif isinstance(found, inspect.EnumType):
            values += [str(member.value) for member in found.cls]
    if values or not steps:
        return values
    parents = list(_at(kind, data, steps[:-1], choose=False))
    return [
        str(each.tag) for each in parents if isinstance(each, inspect.StructType) and each.tag_field == steps[-1][0]
    ]


def _at(kind: type, data: Any, steps: list[tuple[str, str]], choose: bool = True) -> Iterator[inspect.Type]:
    """Yield the types that may stand at a place, as far as the data above tells them apart."""
    candidates = list(_alternatives(inspect.type_info(kind), data, choose or bool(steps)))
    for number, (key, index) in enumerate(steps):
        below = _below(data, key, index)
        last = number == len(steps) - 1
        candidates = [
            each
            for candidate in candidates
            for inner in _inner(candidate, key)
            for each in _alternatives(inner, below, choose or not last)
        ]
        data = below
    yield from candidates


def _alternatives(kind: inspect.Type, data: Any, choose: bool) -> Iterator[inspect.Type]:
    """Yield what a union may be; of tagged mappings the one that the data names, if `choose`."""
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if not isinstance(kind, inspect.UnionType):
        yield kind
        return
    for each in kind.types:
        if choose and isinstance(each, inspect.StructType) and each.tag_field and isinstance(data, Mapping):
            if data.get(each.tag_field) == each.tag:
                yield each
        else:
            yield each


def _inner(kind: inspect.Type, key: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == key)
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type
    elif isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        yield kind.item_type
    elif isinstance(kind, inspect.TupleType):
        yield from kind.item_types


def _below(data: Any, key: str, index: str) -> Any:
    if isinstance(data, Mapping):
        return data.get(key)
    if isinstance(data, list) and index.isdigit() and int(index) < len(data):
        return data[int(index)]
    return None
