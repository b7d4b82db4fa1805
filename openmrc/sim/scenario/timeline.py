"""A schedule in words becomes the columns of `sim.faults`.

Each link keeps its state (down, loss, rate ...); a step sets some of it at a place, and what changed becomes a fault.
So the last word counts, as in the live world: `up: plane 1` ends whatever had put a link of plane 1 down.

A link that goes down loses what is queued and in flight. A NIC whose cable goes down in both directions learns of it
at once, as from a lost carrier; one direction alone, or a loss of 100 %, nobody is told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import ConfigError
from openmrc.fabric.topology import Kind, Topology
from openmrc.faults import Impairment, Schedule, Step
from openmrc.sim.loop.fault_events import FaultKind, Faults, faults
from openmrc.sim.scenario.fault_targets import links_at, uplinks
from openmrc.sim.scenario.matrix_line import Failure, refuse

Ints = NDArray[np.int64]

PORTS_PER_NIC = 64  # in the subject of a port's fault
_PER_LOSS, _PER_BIT_ERROR = 10**9, 10**18
_CHANCES = {
    "duplicate": FaultKind.LINK_DUPLICATE,
    "reorder": FaultKind.LINK_REORDER,
    "trim": FaultKind.LINK_TRIM,
}
_TIMES = {"delay": FaultKind.LINK_DELAY, "jitter": FaultKind.LINK_JITTER}


@dataclass(frozen=True)
class Event:
    """A fault as a report shows it."""

    at: int  # ps
    text: str
    begins: bool = True  # False: it ends what another one began


class _State:
    """What holds of every link at the moment, and the faults that led there."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.down = np.zeros(topology.links, np.int64)
        self.loss = np.zeros(topology.links)
        self.corruption = np.zeros(topology.links)
        self.bit_errors = np.zeros(topology.links)
        self.others = {word: np.zeros(topology.links) for word in (*_CHANCES, *_TIMES)}
        self.rate = topology.link_rate.astype(np.int64)
        self.columns: list[tuple[Ints, Ints, Ints, Ints]] = []

    def emit(self, at: int, kind: FaultKind, subject: Ints, value: Ints | int = 0) -> None:
        shape = np.zeros(len(subject), np.int64)
        self.columns.append((shape + at, shape + int(kind), subject, shape + value))

    def apply(self, at: int, links: Ints, change: dict[str, float]) -> None:
        if "rate" in change:
            self._rate(at, links, int(change["rate"]))
        if "bit_errors" in change:
            self._set(at, links, self.bit_errors, change["bit_errors"], FaultKind.LINK_BIT_ERRORS, _PER_BIT_ERROR)
        for word, kind in _CHANCES.items():
            if word in change:
                self._set(at, links, self.others[word], change[word], kind, _PER_LOSS)
        for word, kind in _TIMES.items():
            if word in change:
                self._set(at, links, self.others[word], change[word], kind, 1)
        for word in ("loss", "corruption"):
            if word in change:
                self._lossy(at, links, word, change[word])
        if "down" in change:
            self._down(at, links, bool(change["down"]))

    def _rate(self, at: int, links: Ints, rate: int) -> None:
        own = self.topology.link_rate[links]
        wanted = np.minimum(rate, own) if rate else own
        changed = links[wanted != self.rate[links]]
        self.rate[links] = wanted
        self.emit(at, FaultKind.LINK_RATE, changed, self.rate[changed])

    def _set(self, at: int, links: Ints, state: NDArray[np.float64], value: float, kind: FaultKind, unit: int) -> None:
        changed = links[state[links] != value]
        state[links] = value
        self.emit(at, kind, changed, round(value * unit))

    def _lossy(self, at: int, links: Ints, word: str, share: float) -> None:
        """Set loss or corruption: a corrupt packet is dropped by the next check, so both are losses here."""
        before = self._lost(links)
        getattr(self, word)[links] = share
        after = self._lost(links)
        self.emit(at, FaultKind.LINK_LOSS, links[before != after], after[before != after])

    def _lost(self, links: Ints) -> Ints:
        kept = (1 - self.loss[links]) * (1 - self.corruption[links])
        return np.rint((1 - kept) * _PER_LOSS).astype(np.int64)

    def _down(self, at: int, links: Ints, down: bool) -> None:
        changed = links[self.down[links] != down]
        cut_before = self._cut(changed)
        self.down[changed] = down
        self.emit(at, FaultKind.LINK_DOWN if down else FaultKind.LINK_UP, changed)
        ports = _ports(self.topology, changed[self._cut(changed) != cut_before])
        self.emit(at, FaultKind.PORT_DOWN if down else FaultKind.PORT_UP, ports)

    def _cut(self, links: Ints) -> Ints:
        """Tell which cables have both directions down."""
        return self.down[links] & self.down[self.topology.link_reverse[links]]


def _ports(topology: Topology, links: Ints) -> Ints:
    """Return NIC x 64 + port of each NIC's end of these links, once each."""
    either = np.concatenate([links, topology.link_reverse[links].astype(np.int64)])
    ours = either[topology.node_kind[topology.link_source[either]] == Kind.NIC]
    return np.unique(topology.link_source[ours].astype(np.int64) * PORTS_PER_NIC + topology.link_port[ours])


def columns(
    topology: Topology, schedule: Schedule, seed: int, failures: list[Failure] | None = None, path: str = ""
) -> Faults:
    """Return the faults of a schedule, and of the `failure` lines of a `.cm` file, in order of time."""
    state = _State(topology)
    for failure in failures or []:
        state.apply(0, _failed(topology, failure, path), {"down": True})
    for step in schedule.steps:
        try:
            links = links_at(topology, step.where, seed)
        except ConfigError as error:
            raise ConfigError(f"{step.source}: {step.where!r}: {error}") from None
        state.apply(step.at, links, dict(step.change))
    parts = [np.concatenate([part[at] for part in state.columns] or [np.zeros(0, np.int64)]) for at in range(4)]
    return faults(*parts)


def _failed(topology: Topology, failure: Failure, path: str) -> Ints:
    """Return both directions of the link that a `failure` line names."""
    found = np.flatnonzero((topology.node_tier == failure.tier) & (topology.node_kind == Kind.SWITCH))
    if failure.switch >= len(found):
        refuse(path, failure.line, "switch_id", failure.switch, f"0..{len(found) - 1}")
    up = uplinks(topology, int(found[failure.switch]))
    if failure.uplink >= len(up):
        refuse(path, failure.line, "link_id", failure.uplink, f"one of the {len(up)} up links of that switch")
    link = up[failure.uplink]
    return np.array([link, topology.link_reverse[link]], np.int64)


def events(schedule: Schedule) -> list[Event]:
    """Return what the schedule does, in words, for a report."""
    return [Event(step.at, f"{_words(step)} {step.where}", _begins(step)) for step in schedule.steps]


def _begins(step: Step) -> bool:
    """Tell whether a step breaks anything."""
    resting = Impairment()
    return any(value != getattr(resting, word) for word, value in step.change.items())


def _words(step: Step) -> str:
    resting = Impairment()
    if "down" in step.change:
        return "down" if step.change["down"] else "up"
    changed = [f"{word} {value:g}" for word, value in step.change.items() if value != getattr(resting, word)]
    return ", ".join(changed) or "clear"
