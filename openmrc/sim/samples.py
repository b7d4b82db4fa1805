"""What the network looked like over time: counters of every plane and tier at moments, and the depth of queues.

A `Recorder` is asked between windows. Without a fixed interval it starts fine and, each time it holds twice what a
chart can show, forgets every second sample and goes on half as fine: so the length of a run need not be known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.fabric.topology import LinkTier, Topology
from openmrc.sim.tables import BYTE_TIME_BITS, Network

Ints = NDArray[np.int64]

KEPT = 256  # samples, without a fixed interval: up to twice as many, at least as many
_PS_PER_BYTE_RATE = 8 * 10**12

COUNTERS = {  # of a group's links, since the beginning
    "data_packets": ("ports", "data_packets"),
    "data_bytes": ("ports", "data_bytes"),
    "ecn_marked": ("wires", "marked"),
    "lost": ("wires", "lost"),
    "trimmed": ("ports", "trimmed"),
    "dropped": ("ports", "dropped"),
}
GAUGES = ("queue_bytes", "queue_longest_ps")  # at the moment: all queues of the group together, and the longest


@dataclass(frozen=True)
class Group:
    """Links of one plane that lead the same way between the same tiers."""

    plane: int
    tier: LinkTier
    up: bool

    @property
    def name(self) -> str:
        """Return such as `nic>t0`."""
        lower, upper = {0: ("nic", "t0"), 1: ("t0", "t1"), 2: ("t1", "t2"), 3: ("site", "site")}[int(self.tier)]
        return f"{lower}>{upper}" if self.up else f"{upper}>{lower}"


@dataclass
class Samples:
    """A row per moment; columns of `values` are the groups."""

    groups: list[Group]
    at: Ints  # ps
    values: dict[str, Ints]  # COUNTERS and GAUGES: (moments, groups)

    def total(self, name: str) -> Ints:
        """Return a counter over all groups."""
        summed: Ints = self.values[name].sum(axis=1)
        return summed


@dataclass
class Recorder:
    """Takes samples, at most one an interval."""

    topology: Topology
    every: int = 0  # ps; 0: as fine as the chart can show
    due: int = 0  # ps, the next sample
    _interval: int = 0
    _at: list[int] = field(default_factory=list)
    _taken: list[dict[str, Ints]] = field(default_factory=list)
    _groups: list[Group] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find the runs of links that belong to one group; regular fabrics have a few, whatever their size."""
        topology = self.topology
        levels = topology.node_tier[topology.link_source], topology.node_tier[topology.link_destination]
        up = (levels[0] < levels[1]) | ((levels[0] == levels[1]) & (topology.link_reverse > np.arange(topology.links)))
        group = (topology.link_plane.astype(np.int64) * 4 + topology.link_tier) * 2 + up
        self._starts = np.flatnonzero(np.diff(group, prepend=-1))
        known, self._group_of_run = np.unique(group[self._starts], return_inverse=True)
        self._groups = [Group(int(code) // 8, LinkTier(int(code) // 2 % 4), bool(code % 2)) for code in known]
        self._interval = self.every or max(1, int(topology.link_delay.min()))

    def take(self, now: int, network: Network) -> None:
        """Record this moment."""
        taken = {name: self._sum(_column(network, *where)) for name, where in COUNTERS.items()}
        backlog = np.maximum(0, _column(network, "ports", "busy_until") - now)
        byte_time = _column(network, "ports", "byte_time")
        taken["queue_bytes"] = self._sum((backlog << BYTE_TIME_BITS) // byte_time)
        taken["queue_longest_ps"] = self._longest(backlog)
        self._at.append(now)
        self._taken.append(taken)
        self._next(now)

    def _next(self, now: int) -> None:
        if not self.every and len(self._at) >= 2 * KEPT:
            del self._at[1::2], self._taken[1::2]
            self._interval *= 2
        self.due = now + self._interval

    def _sum(self, values: NDArray[Any]) -> Ints:
        return self._grouped(np.add, values)

    def _longest(self, values: NDArray[Any]) -> Ints:
        return self._grouped(np.maximum, values)

    def _grouped(self, how: np.ufunc, values: NDArray[Any]) -> Ints:
        own = values[: self.topology.links]  # behind them lie the links of scale-up networks
        runs = how.reduceat(own.astype(np.int64, copy=False), self._starts)
        result = np.zeros(len(self._groups), np.int64)
        how.at(result, self._group_of_run, runs)
        return result

    def samples(self) -> Samples:
        """Return what was recorded."""
        names = [*COUNTERS, *GAUGES]
        empty = np.zeros((0, len(self._groups)), np.int64)
        values = {name: np.array([taken[name] for taken in self._taken], np.int64).reshape(-1, empty.shape[1])
                  for name in names}  # fmt: skip
        return Samples(self._groups, np.array(self._at, np.int64), values)


def _column(network: Network, table: str, name: str) -> NDArray[Any]:
    return np.asarray(getattr(network, table))[name]
