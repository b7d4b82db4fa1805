"""What a switch says it has installed, whatever its operating system."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from openmrc.errors import ConfigError
from openmrc.fabric.tables import Action


@dataclass(frozen=True)
class Installed:
    """Hold one entry as read back."""

    prefix: str
    action: Action
    interface: str  # empty for UN and where the dump does not tell


def normal_prefix(text: str, source: str) -> str:
    """Return a prefix in its usual form; a bare address is a /128."""
    try:
        return str(ipaddress.IPv6Network(text, strict=False))
    except ValueError:
        raise ConfigError(f"{source}: {text!r} is not an IPv6 prefix") from None
