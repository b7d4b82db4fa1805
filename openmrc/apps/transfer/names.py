"""Rules for file names from the network.

A received name is one component of a path; the receiver alone chooses the folder. Rules: no separators, no parent or
current folder, no absolute path, no NUL or control characters, no bidirectional text controls, valid UTF-8, at most
255 bytes (NAME_MAX).
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from openmrc.errors import ConfigError, PeerError

NAME_MAX = 255  # bytes, in ext4, xfs, btrfs and tmpfs
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def fault_of(name: str) -> str | None:
    """Return the fault of a received name, None if it is valid."""
    if name in ("", ".", ".."):
        return "is not a file name"
    if "/" in name or "\\" in name:
        return "contains a path separator"
    for letter in name:
        if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in _REORDERING:
            return f"contains the control character U+{ord(letter):04X}"
    if len(name.encode()) > NAME_MAX:
        return f"has {len(name.encode())} bytes, {NAME_MAX} are allowed"
    return None


def check_names(names: Sequence[str]) -> None:
    """Refuse the first name that is invalid or appears twice; the message escapes its unprintable characters."""
    seen: set[str] = set()
    for name in names:
        fault = fault_of(name) or ("is named twice" if name in seen else None)
        if fault:
            raise PeerError(f"file name {name[:300]!a} {fault}")
        seen.add(name)


def name_to_send(path: Path) -> str:
    """Return the name under which a file is sent; ConfigError if a receiver would refuse it."""
    name = os.fsdecode(os.fsencode(path.name))
    fault = fault_of(name)
    if fault:
        raise ConfigError(f"{str(path)!a}: its name {fault}")
    return name
