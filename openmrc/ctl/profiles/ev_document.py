"""EV profiles as YAML documents with a format, fields and EVs: decoding and validation (docs/entropy.md).

An EV is written in hexadecimal, with or without 0x or quotes; its digits are the leading ones of 32 bytes. An unquoted
`0x0012` keeps its leading zeros: it is read as digits, not as a number.
"""

import re
from typing import Literal

import msgspec

from openmrc.base.yaml_file import Where, decode_placed
from openmrc.ctl.profiles.ev_format import EV_BYTES, EvBitWidths, EvExpansion, EvField, EvFormatMode
from openmrc.errors import CallError, ConfigError

MODES = {"stev": EvFormatMode.STEV, "srv6": EvFormatMode.SRV6, "udp": EvFormatMode.UDP}
_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F_]+)")


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
    decoded, where = decode_placed(text, EvFile, name, as_text="profile.evs")
    expansion = _expansion(decoded, where)
    return EvDocument(expansion, decoded.profile.mode == "generated", _evs(decoded.profile, expansion, where))


def ev_from_hex(text: str) -> bytes:
    """Return the EV with the leading digits `text`; raise ValueError with the reason."""
    digits = _HEX.fullmatch(text)
    if digits is None:
        raise ValueError(f"{text!r} is not hexadecimal")
    plain = digits[1].replace("_", "")
    if not 1 <= len(plain) <= 2 * EV_BYTES:
        raise ValueError(f"{text!r} has {len(plain)} digits; allowed are 1..{2 * EV_BYTES}")
    return bytes.fromhex(plain.ljust(2 * EV_BYTES, "0"))


def _expansion(decoded: EvFile, where: Where) -> EvExpansion:
    fields = tuple(
        EvField(part.width, *(_number(part, word, f"profile.fields[{index}]", where) for word in _NUMBERS))
        for index, part in enumerate(decoded.profile.fields)
    )
    part_of_it = "format"
    try:
        form = EvBitWidths(MODES[decoded.format.mode], decoded.format.widths)
        part_of_it = "profile"
        return EvExpansion(form, fields)
    except CallError as error:
        field, _, reason = error.reason.partition(": ")
        raise _error(where, f"{part_of_it}.{field}", reason) from error


_NUMBERS = ("init_val", "min_val", "max_val", "mask")


def _number(part: _ProfilePart, word: str, path: str, where: Where) -> int:
    """Return a number, which may be given as text: JSON has no hexadecimal."""
    value: int | str = getattr(part, word)
    if isinstance(value, int):
        return value
    try:
        return int(value, 0)
    except ValueError:
        raise _error(where, f"{path}.{word}", f"{value!r} is not a number such as 15 or 0xf") from None


def _evs(profile: _Profile, expansion: EvExpansion, where: Where) -> tuple[bytes, ...] | None:
    if profile.evs is None:
        return None
    evs = []
    for index, text in enumerate(profile.evs):
        try:
            ev = ev_from_hex(str(text))
            expansion.check(ev)
        except (ValueError, CallError) as error:
            reason = error.reason if isinstance(error, CallError) else str(error)
            raise _error(where, f"profile.evs[{index}]", reason) from None
        evs.append(ev)
    return tuple(evs)


def _error(where: Where, path: str, reason: str) -> ConfigError:
    return ConfigError(f"{where(f'$.{path}')}: {path}: {reason}")
