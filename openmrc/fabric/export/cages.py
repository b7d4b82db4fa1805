"""Which cage and which lanes of it a port is: from the speeds of a tier's ports to the names that an image gives them.

A port takes the fewest lanes that carry its speed; the ports of a cage are alike, so a change of speed begins a new
one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from openmrc.errors import ConfigError

ETHERNET = (10, 25, 40, 50, 100, 200, 400, 800, 1600)  # Gb/s: IEEE 802.3
_LEAST_CODED = 25  # Gb/s a lane: from here on links need Reed-Solomon FEC (IEEE 802.3 clauses 91, 119)


@dataclass(frozen=True)
class Cages:
    """Description of a switch model."""

    count: int = 64
    lanes: int = 8  # of a cage
    lane_gbps: float = 100
    breakout: int = 0  # ports of every cage; 0: as many as the speed allows

    def check(self) -> None:
        """Refuse numbers that do not describe a cage."""
        if self.lanes not in (1, 2, 4, 8):
            raise ConfigError(f"{self.lanes} lanes a cage; 1, 2, 4 or 8")
        if self.breakout and self.lanes % self.breakout:
            works = ", ".join(str(parts) for parts in range(1, self.lanes + 1) if self.lanes % parts == 0)
            raise ConfigError(f"{self.lanes} lanes do not divide into {self.breakout} ports; {works} would work")
        if self.count < 1 or self.lane_gbps <= 0:
            raise ConfigError(f"{self.count} cages with lanes of {self.lane_gbps:g}G; both above 0")


class CageSlot(NamedTuple):
    cage: int  # from 0
    part: int  # of the cage, from 0
    parts: int  # ports of the cage
    lanes: int  # of the port
    speed: int  # Gb/s, as Ethernet speed

    @property
    def first_lane(self) -> int:
        """Return the number of the port's first lane; all cages have `parts * lanes`."""
        return (self.cage * self.parts + self.part) * self.lanes

    @property
    def fec(self) -> bool:
        """Return whether the link needs Reed-Solomon FEC."""
        return self.speed / self.lanes >= _LEAST_CODED


def speed_of(gbps: float) -> int:
    """Return the Ethernet speed that carries a rate."""
    found = next((speed for speed in ETHERNET if speed >= gbps), None)
    if found is None:
        raise ConfigError(f"a port of {gbps:g}G: Ethernet has {', '.join(str(speed) for speed in ETHERNET)}")
    return found


def slots(gbps: Iterable[float], cages: Cages) -> list[CageSlot]:
    """Assign ports to cages in order."""
    found: list[CageSlot] = []
    cage, part, before = -1, 0, (0, 0)
    for rate in gbps:
        speed = speed_of(rate)
        parts = cages.breakout or cages.lanes // _lanes(speed, cages)
        part = part + 1 if (speed, parts) == before and part + 1 < parts else 0
        cage, before = cage + (part == 0), (speed, parts)
        found.append(CageSlot(cage, part, parts, cages.lanes // parts, speed))
    if cage >= cages.count:
        need = f"{len(found)} ports need {cage + 1} cages of {cages.lanes} x {cages.lane_gbps:g}G"
        raise ConfigError(f"{need}; the switch has {cages.count}")
    if cages.breakout:
        _check_fits(found, cages)
    return found


def _lanes(speed: int, cages: Cages) -> int:
    for lanes in (1, 2, 4, 8):
        if lanes <= cages.lanes and lanes * cages.lane_gbps >= speed:
            return lanes
    raise ConfigError(
        f"a port of {speed}G is more than a cage of {cages.lanes} x {cages.lane_gbps:g}G; "
        f"lanes of {speed / cages.lanes:g}G would work"
    )


def _check_fits(found: list[CageSlot], cages: Cages) -> None:
    fastest = max(found, key=lambda slot: slot.speed)
    if fastest.speed > fastest.lanes * cages.lane_gbps:
        works = cages.lanes // _lanes(fastest.speed, cages)
        left = f"breakout {cages.breakout} leaves {fastest.lanes} lanes of {cages.lane_gbps:g}G"
        raise ConfigError(f"{left} for a port of {fastest.speed}G; {works} would work")


def sonic_port(slot: CageSlot) -> str:
    """Name a port by its first lane."""
    return f"Ethernet{slot.first_lane}"


def cumulus_port(slot: CageSlot) -> str:
    """Name a port by its cage, and its part of the cage where that is split."""
    return f"swp{slot.cage + 1}" if slot.parts == 1 else f"swp{slot.cage + 1}s{slot.part}"


def eos_port(slot: CageSlot) -> str:
    """Name a port by cage and first lane, both from 1."""
    return f"Ethernet{slot.cage + 1}/{slot.part * slot.lanes + 1}"
