"""Schedules of faults, applied to packets that arrive at a NIC."""

from collections.abc import Sequence
from dataclasses import replace

from openmrc.base.faults import Impairment, OverlappingImpairments, Schedule, Step
from openmrc.core import rng
from openmrc.errors import ConfigError
from openmrc.live.datapath.packets.impair import SHARE_ONE
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.units import NEVER

_BITS = 8 * 4200  # bits of a full packet on the wire; one wrong bit loses the packet


class Impairments:
    """The current impairments of each plane, and the steps still to come."""

    def __init__(self, runtime: EndpointRuntime, seed: int) -> None:
        self._runtime = runtime
        self._waiting: list[tuple[int, Step]] = []
        self._planes = [OverlappingImpairments() for _ in runtime.sockets.addresses]
        self._spells = 0  # spell numbers already used; schedules may overlap
        for plane in range(len(self._planes)):
            runtime.datapath.planes[plane].random = rng.seeded(seed, plane)

    def begin(self, schedule: Schedule, now: int, replace_all: bool = False) -> None:
        """Add the steps of a schedule whose time 0 is `now` (ps), or replace all others by them.

        Call inside the runtime.
        """
        for step in schedule.steps:
            planes_of(step, len(self._planes))  # raises before any change
        if replace_all:
            self._clear()
        numbered = [replace(step, spell=step.spell and step.spell + self._spells) for step in schedule.steps]
        self._spells = max([self._spells, *(step.spell for step in numbered)])
        self._waiting += [(now + step.at, step) for step in numbered]
        self._waiting.sort(key=lambda waiting: waiting[0])
        self.advance(now)

    def advance(self, now: int) -> None:
        """Apply the steps that are due and record when the next one is. Call inside the runtime."""
        while self._waiting and self._waiting[0][0] <= now:
            _, step = self._waiting.pop(0)
            for plane in step.planes(len(self._planes)):
                self._planes[plane].apply(step)
                self._apply(plane)
        self._runtime.nic.step_at = self._waiting[0][0] if self._waiting else NEVER

    def set_back(self, by: int) -> None:
        """Follow a clock that is set back by `by` ps. Call inside the runtime."""
        self._waiting = [(at - by, step) for at, step in self._waiting]

    def _clear(self) -> None:
        """End every impairment, and forget the steps to come."""
        self._waiting.clear()
        for plane in range(len(self._planes)):
            self._planes[plane] = OverlappingImpairments()
            self._apply(plane)

    def _apply(self, plane: int) -> None:
        impairment, row = self._planes[plane].now, self._runtime.datapath.planes[plane]
        for word, value in in_engine_units(impairment).items():
            setattr(row, word, value)
        row.slow = impairment.delay > 0 or impairment.jitter > 0 or impairment.rate > 0
        row.impaired = impairment != Impairment()


def planes_of(step: Step, planes: int) -> Sequence[int]:
    """Return the planes of a step; ConfigError for one that is not there, and for what no endpoint does to packets."""
    for word in ("data_loss", "mtu"):
        if step.change.get(word):
            raise ConfigError(f"{step.source}: {word} is for simulations: endpoints impair all packets alike")
    return step.planes(planes)


def in_engine_units(impairment: Impairment) -> dict[str, int]:
    """Return the fields of a plane's row that say what happens to its arrivals: ps, bits/s, shares of SHARE_ONE."""
    intact = (1 - impairment.loss) * (1 - impairment.bit_errors) ** _BITS
    shares = {word: getattr(impairment, word) for word in ("corruption", "duplicate", "reorder", "trim")}
    return {
        "down": int(impairment.down),
        "delay": impairment.delay,
        "jitter": impairment.jitter,
        "rate": impairment.rate,
        **{word: round(share * SHARE_ONE) for word, share in {"loss": 1 - intact, **shares}.items()},
    }
