"""EV profiles as YAML documents with a format, fields and EVs: decoding and validation (docs/entropy.md).

An EV is written in hexadecimal, with or without 0x or quotes; its digits are the leading ones of 32 bytes. An unquoted
`0x0012` keeps its leading zeros: it is read as digits, not as a number.
"""

import re
from typing import Any, Literal

import msgspec
import yaml

from openmrc.base.documents import check_shape
from openmrc.ctl.profiles.ev_format import EV_BYTES, EvBitWidths, EvExpansion, EvField, EvFormatMode
from openmrc.errors import CallError, ConfigError

MODES = {"stev": EvFormatMode.STEV, "srv6": EvFormatMode.SRV6, "udp": EvFormatMode.UDP}
_TEXT_TAG = "tag:yaml.org,2002:str"
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F_]+)")
_STEP = re.compile(r"([A-Za-z_]\w*)|\[(\d+)\]")


class _ProfilePart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    width: int
    init_val: int | str = 0
    min_val: int | str = 0
    max_val: int | str = 0
    mask: int | str = 0


class _Format(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    mode: Literal["stev", "srv6", "udp"]
    widths: tuple[int, ...]


class _Profile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    mode: Literal["explicit", "generated"]
    fields: tuple[_ProfilePart, ...]
    evs: tuple[str | int, ...] | None = None  # loaded as text; for an editor an unquoted one is a number


class EvFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An EV profile: the format of its EVs, and which there are."""

    format: _Format
    profile: _Profile


class EvDocument(msgspec.Struct, frozen=True):
    """A validated document: expansion, source, and listed EVs."""

    expansion: EvExpansion
    generated: bool
    evs: tuple[bytes, ...] | None  # None: no list


def parse(text: str, name: str) -> EvDocument:
    """Decode a document; ConfigError names the file `name`, line, field, value and allowed values."""
    root, raw = _load(text, name)
    try:
        decoded = msgspec.convert(raw, EvFile)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        raise _error(name, root, path.strip("`").removeprefix("$").lstrip("."), reason) from None
    expansion = _expansion(decoded, name, root)
    return EvDocument(expansion, decoded.profile.mode == "generated", _evs(decoded.profile, expansion, name, root))


def ev_from_hex(text: str) -> bytes:
    """Return the EV with the leading digits `text`; raise ValueError with the reason."""
    digits = _HEX.fullmatch(text)
    if digits is None:
        raise ValueError(f"{text!r} is not hexadecimal")
    plain = digits[1].replace("_", "")
    if not 1 <= len(plain) <= 2 * EV_BYTES:
        raise ValueError(f"{text!r} has {len(plain)} digits; allowed are 1..{2 * EV_BYTES}")
    return bytes.fromhex(plain.ljust(2 * EV_BYTES, "0"))


def _load(text: str, name: str) -> tuple[yaml.Node | None, Any]:
    """Return the tree of nodes, with line numbers, and the values, with EVs as text."""
    try:
        check_shape(text, name)
        loader = yaml.CSafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise ConfigError(f"{name}: empty; `format` and `profile` are needed")
        for node in _children(_found(root, "profile.evs")):
            if isinstance(node, yaml.ScalarNode):
                node.tag = _TEXT_TAG
        return root, loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}: line {line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not YAML: {error}") from None


def _expansion(decoded: EvFile, name: str, root: yaml.Node | None) -> EvExpansion:
    fields = tuple(
        EvField(part.width, *(_number(part, word, f"profile.fields[{index}]", name, root) for word in _NUMBERS))
        for index, part in enumerate(decoded.profile.fields)
    )
    where = "format"
    try:
        form = EvBitWidths(MODES[decoded.format.mode], decoded.format.widths)
        where = "profile"
        return EvExpansion(form, fields)
    except CallError as error:
        field, _, reason = error.reason.partition(": ")
        raise _error(name, root, f"{where}.{field}", reason) from error


_NUMBERS = ("init_val", "min_val", "max_val", "mask")


def _number(part: _ProfilePart, word: str, where: str, name: str, root: yaml.Node | None) -> int:
    """Return a number, which may be given as text: JSON has no hexadecimal."""
    value: int | str = getattr(part, word)
    if isinstance(value, int):
        return value
    try:
        return int(value, 0)
    except ValueError:
        raise _error(name, root, f"{where}.{word}", f"{value!r} is not a number such as 15 or 0xf") from None


def _evs(profile: _Profile, expansion: EvExpansion, name: str, root: yaml.Node | None) -> tuple[bytes, ...] | None:
    if profile.evs is None:
        return None
    evs = []
    for index, text in enumerate(profile.evs):
        try:
            ev = ev_from_hex(str(text))
            expansion.check(ev)
        except (ValueError, CallError) as error:
            reason = error.reason if isinstance(error, CallError) else str(error)
            raise _error(name, root, f"profile.evs[{index}]", reason) from None
        evs.append(ev)
    return tuple(evs)


def _error(name: str, root: yaml.Node | None, path: str, reason: str) -> ConfigError:
    node = _found(root, path)
    line = f" line {node.start_mark.line + 1}:" if node is not None else ""
    return ConfigError(f"{name}:{line} {path}{': ' if path else ''}{reason}")


def _found(root: yaml.Node | None, path: str) -> yaml.Node | None:
    """Return the node at a path such as `profile.fields[0].mask`, or its last existing parent."""
    node = root
    for key, index in _STEP.findall(path):
        following = _member(node, key) if key else _element(node, int(index))
        if following is None:
            return None if node is root else node
        node = following
    return node


def _member(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    return None


def _element(node: yaml.Node | None, index: int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and index < len(node.value):
        return node.value[index]  # type: ignore[no-any-return]  # untyped in the stubs
    return None


def _children(node: yaml.Node | None) -> list[Any]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
