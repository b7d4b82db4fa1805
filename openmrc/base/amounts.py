"""Amounts as people write them: `800G`, `64K` on a command line; in files `2MB`, `64KiB`, `10ms`."""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from openmrc.errors import ConfigError, UsageError
from openmrc.units import PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US

_RATE = re.compile(r"^(\d+(?:\.\d+)?)\s*([GMT])(?:b(?:it)?/?(?:p?s)?)?$", re.IGNORECASE)
_IN_GBPS = {"M": 0.001, "G": 1.0, "T": 1000.0}


def gbps_of(text: str) -> float:
    """Return a rate in Gb/s."""
    match = _RATE.match(text.strip())
    if match is None or float(match.group(1)) <= 0:
        raise ConfigError(f"{text!r} is not a rate; write a positive number with M, G or T, such as 800G or 51.2T")
    return round(float(match.group(1)) * _IN_GBPS[match.group(2).upper()], 9)


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE_ON_A_LINE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)
LARGEST = 1 << 50


def size_bytes(text: str, option: str, least: int = 0, most: int = LARGEST) -> int:
    """Return "4K" as 4096; suffixes are powers of 1024, as in perftest. ConfigError names the option."""
    match = _SIZE_ON_A_LINE.fullmatch(text)
    if match is None:
        raise UsageError(f"{option}: {text!r} is not a size such as 65536, 64K or 1M")
    size = round(float(match[1]) * _UNITS[match[2].upper()])
    if not least <= size <= most:
        raise UsageError(f"{option}: {text} is not in {size_text(least)} to {size_text(most)}")
    return size


def size_text(size: float) -> str:
    """Return 1610612736 as "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:g} {unit}" if float(size).is_integer() else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def gbps(size: float, seconds: float) -> float:
    """Return bytes in seconds as Gb/s; 0 if no time passed."""
    return size * 8e-9 / seconds if seconds > 0 else 0.0


_SIZE = r"^(\d+(?:\.\d+)?) ?(B|kB|KB|MB|GB|KiB|MiB|GiB)$"
_TIME = r"^(\d+(?:\.\d+)?) ?(ps|ns|us|ms|s)$"

MOST_BYTES = 1 << 50  # of an amount; far above any vector
MOST_PS = 10**6 * PS_PER_S  # of a duration, so that a sum of several fits into 64 bits

Bytes = Annotated[int, Meta(ge=1, le=MOST_BYTES)] | Annotated[str, Meta(pattern=_SIZE)]
Duration = Annotated[str, Meta(pattern=_TIME)]

_BYTES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}  # fmt: skip
_PICOSECONDS = {"ps": 1, "ns": PS_PER_NS, "us": PS_PER_US, "ms": PS_PER_MS, "s": PS_PER_S}


def bytes_of(amount: int | str) -> int:
    """Return a size in bytes."""
    if isinstance(amount, int):
        return amount
    size = _scaled(_SIZE, amount, _BYTES, "a size such as 2MB or 64KiB")
    if size > MOST_BYTES:
        raise ConfigError(f"{amount!r}: expected at most {MOST_BYTES >> 30:,}GiB")
    return size


def ps_of(duration: str) -> int:
    time = _scaled(_TIME, duration, _PICOSECONDS, "a time such as 10ms or 50us")
    if time > MOST_PS:
        raise ConfigError(f"{duration!r}: expected at most {MOST_PS // PS_PER_S:,}s")
    return time


def _scaled(pattern: str, text: str, units: dict[str, int], expected: str) -> int:
    match = re.fullmatch(pattern, text)
    if not match:
        raise ConfigError(f"{text!r}: expected {expected}")
    return int(Decimal(match.group(1)) * units[match.group(2)])


def refuse_excess(parameters: Struct) -> None:
    """Raise ValueError if a size or time of `parameters` is above the limit; msgspec adds the place in the file."""
    for name, convert in _amounts_in(type(parameters)):
        amount = getattr(parameters, name)
        if amount is None:
            continue
        try:
            convert(amount)
        except ConfigError as error:
            raise ValueError(f"{name}: {error}") from None


@cache
def _amounts_in(kind: type[Struct]) -> list[tuple[str, Callable[[Any], int]]]:
    """Return the fields of a struct that hold amounts, with the function that converts each."""
    converters: list[tuple[Any, Callable[[Any], int]]] = [
        (Duration, ps_of),
        (Duration | None, ps_of),
        (Bytes, bytes_of),
    ]
    return [
        (field.name, convert) for field in structs.fields(kind) for like, convert in converters if field.type == like
    ]
