"""Amounts in workloads: `2MB`, `64KiB`, or a plain number of bytes; `10ms`, `50us`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from msgspec import Meta

from openmrc.errors import ConfigError
from openmrc.units import PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US

_SIZE = r"^(\d+(?:\.\d+)?) ?(B|kB|KB|MB|GB|KiB|MiB|GiB)$"
_TIME = r"^(\d+(?:\.\d+)?) ?(ps|ns|us|ms|s)$"

Bytes = Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern=_SIZE)]
Duration = Annotated[str, Meta(pattern=_TIME)]

_BYTES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}  # fmt: skip
_PICOSECONDS = {"ps": 1, "ns": PS_PER_NS, "us": PS_PER_US, "ms": PS_PER_MS, "s": PS_PER_S}


def bytes_of(amount: int | str) -> int:
    """Return a size in bytes."""
    return amount if isinstance(amount, int) else _scaled(_SIZE, amount, _BYTES, "a size such as 2MB or 64KiB")


def ps_of(duration: str) -> int:
    """Return a duration in picoseconds."""
    return _scaled(_TIME, duration, _PICOSECONDS, "a time such as 10ms or 50us")


def _scaled(pattern: str, text: str, units: dict[str, int], expected: str) -> int:
    match = re.fullmatch(pattern, text)
    if not match:
        raise ConfigError(f"{text!r}: expected {expected}")
    return int(Decimal(match.group(1)) * units[match.group(2)])
