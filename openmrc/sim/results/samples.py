"""State of network and transport over time: counters of every plane and tier, queues, paths, windows.

A `LinkSampler` samples between windows. Without a fixed interval it starts with a short one and, each time it holds
twice the samples of a chart, drops every second sample and doubles the interval: the length need not be known.
Around chosen times, the faults, it samples more often and drops nothing. So the samples of the whole run are evenly
apart, but for times in which nothing happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from openmrc.core.arrays import Ints
from openmrc.core.jit import entry
from openmrc.core.rows import Table
from openmrc.fabric.model.topology import LinkTier, Topology
from openmrc.sim.network.network_tables import BYTE_TIME_BITS, EgressPort, Network, Wire
from openmrc.units import NEVER

COUNTERS = ("data_packets", "data_bytes", "ecn_marked", "lost", "trimmed", "dropped")  # since the start
GAUGES = ("queue_bytes", "queue_longest_ps")  # current values: sum of all queues of the group, and the longest
COLUMNS = COUNTERS + GAUGES


@entry
def add_up(
    ports: Table[EgressPort], wires: Table[Wire], now: int, firsts: Ints, ends: Ints, groups: Ints, out: Ints
) -> None:
    """Add the links firsts[i] to ends[i] - 1 to column groups[i] of `out`, whose rows are COLUMNS; for all i."""
    for run in range(len(firsts)):
        group = groups[run]
        for link in range(firsts[run], ends[run]):
            port, wire = ports[link], wires[link]
            backlog = max(0, port.busy_until - now)
            out[0, group] += port.data_packets
            out[1, group] += port.data_bytes
            out[2, group] += wire.marked
            out[3, group] += wire.lost
            out[4, group] += port.trimmed
            out[5, group] += port.dropped
            out[6, group] += (backlog << BYTE_TIME_BITS) // port.byte_time
            out[7, group] = max(out[7, group], backlog)


KEPT = 256  # samples, without a fixed interval: up to twice as many, at least as many
FINE = 96  # samples of a span around a fault
FEW, LARGE = 24, 100_000  # the same in a fabric with more links than this, where a sample takes long


def goes_up(topology: Topology) -> NDArray[np.bool_]:
    """Return which links lead to a higher tier; of those between equals, one direction."""
    below, above = topology.node_tier[topology.link_source], topology.node_tier[topology.link_destination]
    up: NDArray[np.bool_] = (below < above) | ((below == above) & (topology.link_reverse > np.arange(topology.links)))
    return up


@dataclass(frozen=True)
class LinkGroup:
    """Links of one plane in the same direction between the same tiers."""

    plane: int
    tier: LinkTier
    up: bool

    @property
    def name(self) -> str:
        """Return such as `nic>t0`."""
        lower, upper = {0: ("nic", "t0"), 1: ("t0", "t1"), 2: ("t1", "t2"), 3: ("site", "site")}[int(self.tier)]
        return f"{lower}>{upper}" if self.up else f"{upper}>{lower}"


@dataclass(frozen=True)
class Span:
    """A time span with finer samples (ps), and its fault."""

    begin: int
    fault: int
    end: int


@runtime_checkable
class Observed(Protocol):
    """A transport that reports time series."""

    def series(self, state: Any) -> dict[str, int]:
        """Return totals since the start, and current values, by name."""

    def windows(self, state: Any, network: Network, flows: Ints) -> dict[str, NDArray[Any]]:
        """Return current values of some flows and their connections, by name."""


@dataclass
class Samples:
    """A row per sample; columns of `values` are the groups, of `windows` the watched flows."""

    groups: list[LinkGroup]
    at: Ints  # ps
    values: dict[str, Ints]  # of COLUMNS: (samples, groups)
    is_regular: NDArray[np.bool_]  # by sample: one of those that cover the whole run
    flows: Ints  # one of each watched connection
    series: dict[str, Ints]  # time series of the transport: (samples,)
    windows: dict[str, NDArray[Any]]  # of the flows' connections: (samples, flows)

    def total(self, name: str) -> Ints:
        """Return a counter over all groups."""
        summed: Ints = self.values[name].sum(axis=1)
        return summed

    def rows(self, which: NDArray[Any]) -> Samples:
        kept: dict[str, Any] = {
            part: {name: values[which] for name, values in getattr(self, part).items()}
            for part in ("values", "series", "windows")
        }
        return replace(self, at=self.at[which], is_regular=self.is_regular[which], **kept)

    @property
    def overview(self) -> Samples:
        """Return samples that cover the whole run evenly."""
        return self.rows(self.is_regular)

    def within(self, span: Span) -> Samples:
        return self.rows((self.at >= span.begin) & (self.at <= span.end))


@dataclass
class _Moment:
    at: int
    values: dict[str, Ints]
    series: dict[str, int]
    windows: dict[str, NDArray[Any]]


@dataclass
class LinkSampler:
    """Takes samples, at most one per interval; finer in `spans`."""

    topology: Topology
    every: int = 0  # ps; 0: as fine as the chart can show
    spans: Sequence[Span] = ()
    transport: object = None  # sampled if it is `Observed`
    watched: Sequence[Ints] = ()  # connections whose windows are recorded: all flows of each
    due: int = 0  # ps, the next sample
    _interval: int = 0
    _regular_due: int = 0
    _regular: list[_Moment] = field(default_factory=list)
    _fine: list[_Moment] = field(default_factory=list)
    _groups: list[LinkGroup] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find the ranges of links of each group; regular fabrics have few, whatever their size."""
        topology = self.topology
        group = (topology.link_plane.astype(np.int64) * 4 + topology.link_tier) * 2 + goes_up(topology)
        self._starts = np.flatnonzero(np.diff(group, prepend=-1))
        self._ends = np.append(self._starts[1:], topology.links)
        known, self._group_of_run = np.unique(group[self._starts], return_inverse=True)
        self._groups = [LinkGroup(int(code) // 8, LinkTier(int(code) // 2 % 4), bool(code % 2)) for code in known]
        self._interval = self.every or max(1, int(topology.link_delay.min()))

    def take(self, now: int, network: Network, state: Any = None) -> None:
        moment = _Moment(now, self._of_network(now, network), {}, {})
        if isinstance(self.transport, Observed):
            moment.series = self.transport.series(state)
            moment.windows = self.transport.windows(state, network, self._under_way(now, network))
        if now >= self._regular_due:
            self._regular.append(moment)
            self._thin()
            self._regular_due = now + self._interval
        else:
            self._fine.append(moment)
        self.due = min(self._regular_due, self._fine_after(now))

    def _of_network(self, now: int, network: Network) -> dict[str, Ints]:
        totals = np.zeros((len(COLUMNS), len(self._groups)), np.int64)
        add_up(network.ports, network.wires, now, self._starts, self._ends, self._group_of_run, totals)
        return dict(zip(COLUMNS, totals, strict=True))

    def _under_way(self, now: int, network: Network) -> Ints:
        """Return the current flow of each watched connection: the oldest that is not done.

        Between two of them it is the previous one; transports with a window per message show its last value there.
        """
        started, ended, failed = (np.asarray(network.flows)[name] for name in ("posted_at", "sent_at", "failed_at"))
        chosen = []
        for flows in self.watched:
            begun = flows[started[flows] <= now]
            open_ = begun[(ended[begun] == NEVER) & (failed[begun] == NEVER)]
            chosen.append(open_[np.argmin(started[open_])] if len(open_)
                          else begun[np.argmax(started[begun])] if len(begun) else flows[0])  # fmt: skip
        return np.array(chosen, np.int64)

    def _thin(self) -> None:
        if not self.every and len(self._regular) >= 2 * KEPT:
            del self._regular[1::2]
            # The loop samples between windows, which may be longer than the interval: what was kept says how far apart.
            apart = int(np.median(np.diff([moment.at for moment in self._regular])))
            self._interval = max(2 * self._interval, apart)

    def _fine_after(self, now: int) -> int:
        """Return when the next sample within a span is due (ps)."""
        count = FINE if self.topology.links < LARGE else FEW
        due = NEVER
        for span in self.spans:
            if now < span.begin:
                due = min(due, span.begin)
            elif now < span.end:
                due = min(due, now + max(1, (span.end - span.begin) // count))
        return due

    def samples(self) -> Samples:
        """Return the samples in order of time."""
        regular = {moment.at for moment in self._regular}
        moments = sorted([*self._regular, *self._fine], key=lambda moment: moment.at)
        shape = (len(moments), len(self._groups))
        last = moments[-1] if moments else _Moment(0, {}, {}, {})
        return Samples(
            groups=self._groups,
            at=np.array([moment.at for moment in moments], np.int64),
            values={
                name: np.array([moment.values[name] for moment in moments], np.int64).reshape(shape) for name in COLUMNS
            },
            is_regular=np.array([moment.at in regular for moment in moments], np.bool_),
            flows=np.array([flows[0] for flows in self.watched], np.int64),
            series={name: np.array([moment.series[name] for moment in moments], np.int64) for name in last.series},
            windows={name: np.array([moment.windows[name] for moment in moments]) for name in last.windows},
        )
