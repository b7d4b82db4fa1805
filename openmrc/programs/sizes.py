"""Sizes and rates in text form: read 4K, 1M, 2GiB; write 1.5 GiB and 7.31 Gb/s."""

from __future__ import annotations

import re

from openmrc.errors import UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)
LARGEST = 1 << 50


def size_bytes(text: str, option: str, least: int = 0, most: int = LARGEST) -> int:
    """Return "4K" as 4096; suffixes are powers of 1024, as in perftest. ConfigError names the option."""
    match = _SIZE.fullmatch(text)
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
