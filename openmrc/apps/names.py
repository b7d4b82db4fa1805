"""Names of files that came over the network: which are refused, and why.

A received name is one component of a path and nothing else; where it goes is decided here, not by
the sender. Rules: no separators, no parent or current folder, no absolute path, no NUL or control
characters, none that reorder the text on a terminal, valid UTF-8, at most 255 bytes (NAME_MAX).
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from openmrc.errors import ConfigError, PeerError

NAME_MAX = 255  # bytes; of ext4, xfs, btrfs and tmpfs
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def fault_of(name: str) -> str | None:
    """Return what is wrong with a received name, None if nothing is."""
    if name in ("", ".", ".."):
        return "is no file name"
    if "/" in name or "\\" in name:
        return "holds a path separator"
    for letter in name:
        if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in _REORDERING:
            return f"holds the control character U+{ord(letter):04X}"
    if len(name.encode()) > NAME_MAX:
        return f"has {len(name.encode())} bytes, {NAME_MAX} are allowed"
    return None


def check_names(names: Sequence[str]) -> None:
    """Refuse the first name that is wrong or appears twice; the text shows it with its odd characters escaped."""
    seen: set[str] = set()
    for name in names:
        fault = fault_of(name) or ("is named twice" if name in seen else None)
        if fault:
            raise PeerError(f"file name {name[:300]!a} {fault}")
        seen.add(name)


def name_to_send(path: Path) -> str:
    """Return the name under which a file travels; ConfigError if a receiver would refuse it."""
    name = os.fsdecode(os.fsencode(path.name))
    fault = fault_of(name)
    if fault:
        raise ConfigError(f"{str(path)!a}: its name {fault}")
    return name
