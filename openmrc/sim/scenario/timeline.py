"""Convert a schedule of faults into the columns of `sim.loop.fault_events`.

Each link has a state (down, loss, rate ...). A step sets part of it at a target, and every change of the state becomes
a fault. A step without an end applies until the next one without an end: `up: plane 1` ends all earlier `down` of links
of plane 1. A step with a duration (`for`) overrides the state and restores it at its end (`layers`), so a flap does not
revive a link that another step has taken down for good.

A link that goes down loses its queued packets and those in flight. A NIC whose cable goes down in both directions
detects it immediately, as a lost carrier; it does not detect one direction alone, or a loss of 100 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.base.faults import Impairment, Schedule, Step, change_text
from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.model.naming import links_at, uplinks
from openmrc.fabric.model.topology import NodeKind, Topology
from openmrc.sim.loop.fault_events import FaultKind, Faults, faults
from openmrc.sim.scenario.matrix_line import FailureLine, refuse


@dataclass(frozen=True)
class _Spell:
    began: int  # in order of all changes
    links: Ints
    value: float


class LinkLayers:
    """The value of one property at every link; initially 0."""

    def __init__(self, links: int) -> None:
        self.value = np.zeros(links)  # current value
        self._base = np.zeros(links)
        self._spells_here = np.zeros(links, np.int64)
        self._set_at = np.zeros(links, np.int64)  # when the base was set last, in order of all changes
        self._spells: dict[int, _Spell] = {}  # by number, in order of their beginnings
        self._changes = 0

    def after(self, links: Ints, value: float, spell: int = 0, ends: bool = False) -> Ints:
        """Set a value, begin a spell (its number above 0) or end one; return the links whose value changed."""
        self._changes += 1
        before = self.value[links]
        if ends:
            self._end(spell)
        elif spell:
            self._spells[spell] = _Spell(self._changes, links, value)
            self._spells_here[links] += 1
            self.value[links] = value
        else:
            self._base[links] = self.value[links] = value
            self._spells_here[links] = 0
            self._set_at[links] = self._changes
        changed: Ints = links[self.value[links] != before]
        return changed

    def _end(self, number: int) -> None:
        """End a spell where it still applies; restore the latest of the others, or the base."""
        gone = self._spells.pop(number)
        links = gone.links[self._set_at[gone.links] < gone.began]
        self._spells_here[links] -= 1
        self.value[links] = self._base[links]
        covered = links[self._spells_here[links] > 0]
        for spell in self._spells.values() if len(covered) else ():
            under = covered[np.isin(covered, spell.links) & (self._set_at[covered] < spell.began)]
            self.value[under] = spell.value


PORTS_PER_NIC = 64  # in the subject of a port's fault
_PER_LOSS, _PER_BIT_ERROR = 10**9, 10**18
_SCALED = {  # words whose value is that of a fault, times a factor
    "down": (FaultKind.LINK_DOWN, 1),
    "bit_errors": (FaultKind.LINK_BIT_ERRORS, _PER_BIT_ERROR),
    "duplicate": (FaultKind.LINK_DUPLICATE, _PER_LOSS),
    "reorder": (FaultKind.LINK_REORDER, _PER_LOSS),
    "trim": (FaultKind.LINK_TRIM, _PER_LOSS),
    "data_loss": (FaultKind.LINK_DATA_LOSS, _PER_LOSS),
    "delay": (FaultKind.LINK_DELAY, 1),
    "jitter": (FaultKind.LINK_JITTER, 1),
    "mtu": (FaultKind.LINK_MTU, 1),
}


@dataclass(frozen=True)
class ReportedFault:
    at: int  # ps
    text: str
    begins: bool = True  # False: it ends an earlier one
    until: int | None = None  # ps; when what begins here ends, None: not in the schedule


class _State:
    """The current state of every link, and the faults so far."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.words = {word: LinkLayers(topology.links) for word in Impairment.__dataclass_fields__}
        self.columns: list[tuple[Ints, Ints, Ints, Ints]] = []

    def apply(self, step: Step, links: Ints) -> None:
        """Change the links' state by a step."""
        self._refuse_rate(step, links)
        lost, cut = self._lost(links), self._cut(links)
        for word, value in step.change.items():
            changed = self.words[word].after(links, float(value), step.spell, step.ends)
            self._emit_word(step.at, word, changed)
        after = self._lost(links)
        self.emit(step.at, FaultKind.LINK_LOSS, links[lost != after], after[lost != after])
        self._emit_ports(step.at, links, cut)

    def _refuse_rate(self, step: Step, links: Ints) -> None:
        """Refuse a rate above that of every link of the target; slower links among them keep their rate."""
        rate, most = int(step.change.get("rate", 0)), int(self.topology.link_rate[links].max(initial=0))
        if rate > most:
            raise ConfigError(f"rate {rate / 1e9:g} Gb/s: these links have {most / 1e9:g} Gb/s; faults slow down")

    def _emit_word(self, at: int, word: str, links: Ints) -> None:
        value = self.words[word].value[links]
        if word == "rate":
            own = self.topology.link_rate[links]
            self.emit(at, FaultKind.LINK_RATE, links, np.where(value > 0, np.minimum(value, own), own))
        elif word in _SCALED:
            kind, factor = _SCALED[word]
            self.emit(at, kind, links, np.rint(value * factor))

    def _emit_ports(self, at: int, links: Ints, cut_before: Ints) -> None:
        cut = self._cut(links)
        for down in (1, 0):
            self.emit(at, FaultKind.PORT_DOWN, _ports(self.topology, links[(cut == down) & (cut != cut_before)]), down)

    def emit(self, at: int, kind: FaultKind, subject: Ints, value: NDArray[Any] | int) -> None:
        """Add a fault of each subject."""
        shape = np.zeros(len(subject), np.int64)
        self.columns.append((shape + at, shape + int(kind), subject, shape + np.asarray(value).astype(np.int64)))

    def _lost(self, links: Ints) -> Ints:
        """Return the share of packets lost, in 1e-9: a corrupt packet is dropped by the next check."""
        kept = (1 - self.words["loss"].value[links]) * (1 - self.words["corruption"].value[links])
        return np.rint((1 - kept) * _PER_LOSS).astype(np.int64)

    def _cut(self, links: Ints) -> Ints:
        """Return 1 for links whose cable has both directions down."""
        down = self.words["down"].value
        return (down[links] * down[self.topology.link_reverse[links]]).astype(np.int64)


def _ports(topology: Topology, links: Ints) -> Ints:
    """Return NIC x 64 + port of each NIC's end of these links, once each."""
    either = np.concatenate([links, topology.link_reverse[links].astype(np.int64)])
    ours = either[topology.node_kind[topology.link_source[either]] == NodeKind.NIC]
    return np.unique(topology.link_source[ours].astype(np.int64) * PORTS_PER_NIC + topology.link_port[ours])


def columns(
    topology: Topology, schedule: Schedule, seed: int, failures: list[FailureLine] | None = None, path: str = ""
) -> Faults:
    """Return the faults of a schedule, and of the `failure` lines of a `.cm` file, in order of time."""
    state = _State(topology)
    for failure in failures or []:
        state.apply(Step(0, "", {"down": True}), _failed(topology, failure, path))
    for step in schedule.steps:
        try:
            state.apply(step, links_at(topology, step.where, seed))
        except ConfigError as error:
            raise ConfigError(f"{step.source}: {step.where!r}: {error}") from None
    parts = [np.concatenate([part[at] for part in state.columns] or [np.zeros(0, np.int64)]) for at in range(4)]
    return faults(*parts)


def _failed(topology: Topology, failure: FailureLine, path: str) -> Ints:
    """Return both directions of the link that a `failure` line names."""
    found = np.flatnonzero((topology.node_tier == failure.tier) & (topology.node_kind == NodeKind.SWITCH))
    if failure.switch >= len(found):
        refuse(path, failure.line, "switch_id", failure.switch, f"0..{len(found) - 1}")
    up = uplinks(topology, int(found[failure.switch]))
    if failure.uplink >= len(up):
        refuse(path, failure.line, "link_id", failure.uplink, f"one of the {len(up)} up links of that switch")
    link = up[failure.uplink]
    return np.array([link, topology.link_reverse[link]], np.int64)


def events(schedule: Schedule) -> list[ReportedFault]:
    """Return the events of the schedule as text, for a report."""
    return [
        ReportedFault(
            step.at,
            f"{change_text(step.change)} {step.where}",
            _begins(step),
            _end_of(step, schedule.steps[number + 1 :]),
        )
        for number, step in enumerate(schedule.steps)
    ]


def _end_of(step: Step, later: Sequence[Step]) -> int | None:
    """Return when a step's change is over: after its time, or with the next change of the same words at its target."""
    if not _begins(step):
        return None
    if step.lasts:
        return step.at + step.lasts
    words = set(step.change)
    return next((each.at for each in later if each.where == step.where and words & set(each.change)), None)


def _begins(step: Step) -> bool:
    """Return whether a step starts a fault."""
    resting = Impairment()
    return any(value != getattr(resting, word) for word, value in step.change.items())
