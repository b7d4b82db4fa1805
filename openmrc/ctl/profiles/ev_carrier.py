"""What a profile asks of the device that is to send its EVs."""

from __future__ import annotations

from typing import Protocol

from openmrc.ctl.profiles.ev_array import EvEntry
from openmrc.ctl.profiles.ev_format import EvExpansion, EvFormatMode


class EvCarrier(Protocol):
    """A device with its ports, and the EVs that its packets can carry."""

    def generated(self, expansion: EvExpansion, count: int, seed: int) -> list[EvEntry]:
        """Return `count` EVs within the bounds of the fields, over all ports; E2BIG if there are fewer."""

    def check_ports(self, ports: set[int]) -> None:
        """Raise EINVAL if a queue pair could not do with EVs on these ports alone."""

    def check(self, mode: EvFormatMode, ev: EvEntry, expanded: bytes, name: str) -> None:
        """Raise EINVAL under `name` for an EV that no packet of this device can carry."""
