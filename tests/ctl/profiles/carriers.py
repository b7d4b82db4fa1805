"""Devices for tests of EV profiles."""

from __future__ import annotations

from openmrc.ctl.profiles.ev_array import EvEntry
from openmrc.ctl.profiles.ev_format import EvExpansion, EvFormatMode
from openmrc.ctl.profiles.ev_generation import generate


class AnyCarrier:
    """A device that carries every EV, and draws generated ones from all that the fields allow."""

    def __init__(self, ports: int) -> None:
        self._ports = ports

    def generated(self, expansion: EvExpansion, count: int, seed: int) -> list[EvEntry]:
        """Return EVs for all ports in turn."""
        values = generate(expansion, count, seed)
        return [EvEntry(value, index % self._ports + 1) for index, value in enumerate(values)]

    def check_ports(self, ports: set[int]) -> None:
        """Accept any."""

    def check(self, mode: EvFormatMode, ev: EvEntry, expanded: bytes, name: str) -> None:
        """Accept any."""
