"""A plan of work: messages and computations, and the dependencies between them.

Every workload builds one. A *node* is a message from one host to another, a computation at one host
(it takes time and moves nothing), or a gate (it takes no time and joins many dependencies). An *edge*
starts its second node when the first has finished: a message has finished when all of it has arrived
(the default), or when all of it is acknowledged.

Nodes are added in bulk, as arrays: an all-reduce of a thousand hosts has two million.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from openmrc.base.amounts import Duration, refuse_excess
from openmrc.errors import ConfigError

Count = Annotated[int, Meta(ge=1, lt=1 << 40)]
Amount = Annotated[int, Meta(ge=0, lt=1 << 40)]
Share = Annotated[float, Meta(gt=0, le=1)]


class Parameters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Parameters common to all families."""

    start: Duration = "0us"  # when the workload begins
    hosts: str | None = None  # those it runs on, such as 0-63; default: all (`shares`)
    every: Duration | None = None  # it begins again after this time, `times` times in all
    times: Count = 1
    second_class: bool = False  # its data waits in queues of its own, with a share of links (`network.links.sharing`)
    message_time: Duration = "0us"  # of the host before each message: software, kernels of GPUs
    step_time: Duration = "0us"  # and before those that begin a step: a call, or a message after one from another host

    def __post_init__(self) -> None:
        """Refuse sizes and times that do not fit into the simulator's integers."""
        refuse_excess(self)
        if (self.times > 1) != (self.every is not None):
            raise ValueError("every, times: a workload that begins again needs both, such as every: 10ms, times: 5")

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return the work once, on all of these hosts."""
        raise AssertionError("every family has its own")


Ids = npt.NDArray[np.int64]

NOWHERE = -1  # the destination of a computation or a gate
UNLABELLED = -1
LARGEST_MESSAGE = (1 << 32) - 1  # bytes; the length field of a remote write has 32 bits
MOST_NODES = 100_000_000  # of a plan; the simulator needs some 200 bytes for each


def refuse_many(count: int, field: str) -> None:
    """Refuse a workload of too many messages before it is built; `field` names what to reduce."""
    if count > MOST_NODES:
        raise ConfigError(f"workload: {field}: {count:,} messages and computations, at most {MOST_NODES:,}")


@dataclass(frozen=True)
class WorkloadHosts:
    """The hosts of a fabric as workloads see them: their number, NIC rate and scale-up domains."""

    count: int
    nic_bits_per_s: int = 800_000_000_000
    domain: int = 1  # hosts per scale-up domain, whose messages use its network


@dataclass
class Nodes:
    """Columns of a plan, a row per node."""

    source: Ids
    destination: Ids  # NOWHERE: moves nothing
    size: Ids  # bytes
    start: Ids  # ps, the earliest
    length: Ids  # ps, of a computation; of a message, what its host takes before it
    need: Ids  # number of predecessors that must finish; 0: all
    single_path: Ids  # 1: all packets on one path
    connection: Ids  # messages between two hosts with equal numbers are in order
    label: Ids  # index of `Plan.labels`, or UNLABELLED


@dataclass
class WorkloadGraph:
    """Nodes and edges under construction; `nodes()` and `edges()` return them as arrays."""

    hosts: int
    marks: dict[str, list[int]] = field(default_factory=dict)  # nodes whose times are reported, by name
    count: int = 0
    second_class: bool = False  # all its messages are in the second class of data
    labels: list[str] = field(default_factory=list)  # names of collectives and computations, for reports
    kinds: dict[str, str] = field(default_factory=dict)  # the collective that a label names, such as all_to_all
    _label: int = UNLABELLED  # of the nodes added next
    _nodes: list[Nodes] = field(default_factory=list)
    _edges: list[tuple[Ids, Ids, Ids]] = field(default_factory=list)

    def messages(
        self,
        source: npt.ArrayLike,
        destination: npt.ArrayLike,
        size: npt.ArrayLike,
        start: npt.ArrayLike = 0,
        *,
        single_path: bool = False,
        labels: npt.ArrayLike | None = None,
    ) -> Ids:
        """Add messages (arrays broadcast); return their ids. `labels` are results of `label`, one per message."""
        columns = [_column(value) for value in (source, destination, size, start)]
        source, destination, size, start = np.broadcast_arrays(*columns)
        self._refuse_messages(source, destination, size)
        nothing = np.zeros(len(source), np.int64)
        single = nothing + int(single_path)
        return self._add(
            Nodes(source, destination, size, start, nothing, nothing, single, nothing, self._labelled(nothing, labels))
        )

    def _refuse_messages(self, source: Ids, destination: Ids, size: Ids) -> None:
        if not len(source):
            return
        lowest, highest = min(source.min(), destination.min()), max(source.max(), destination.max())
        if lowest < 0 or highest >= self.hosts:
            wrong = lowest if lowest < 0 else highest
            raise ConfigError(f"workload: host {wrong} does not exist; hosts are 0..{self.hosts - 1}")
        if (source == destination).any():
            raise ConfigError(f"workload: host {source[source == destination][0]} sends to itself")
        if size.min() < 1 or size.max() > LARGEST_MESSAGE:
            wrong = size.min() if size.min() < 1 else size.max()
            raise ConfigError(f"workload: a message of {wrong} bytes; expected 1..{LARGEST_MESSAGE}")

    def computations(
        self,
        host: npt.ArrayLike,
        length: npt.ArrayLike,
        start: npt.ArrayLike = 0,
        *,
        labels: npt.ArrayLike | None = None,
    ) -> Ids:
        """Add computations of `length` ps; return their ids."""
        columns = [_column(value) for value in (host, length, start)]
        host, length, start = np.broadcast_arrays(*columns)
        nothing = np.zeros(len(host), np.int64)
        label = self._labelled(nothing, labels)
        return self._add(Nodes(host, nothing + NOWHERE, nothing, start, length, nothing, nothing, nothing, label))

    def gate(self, need: int = 0) -> int:
        """Add a gate that opens when `need` of its predecessors have finished (0: all of them)."""
        zero = np.zeros(1, np.int64)
        none = zero + UNLABELLED
        return int(self._add(Nodes(zero, zero + NOWHERE, zero, zero, zero, zero + need, zero, zero, none))[0])

    def label(self, name: str) -> int:
        """Set the label of the nodes added until the next call; "" removes it. Return its number."""
        self._label = len(self.labels) if name else UNLABELLED
        self.labels += [name] if name else []
        return self._label

    def label_as(self, number: int) -> None:
        self._label = number

    def _labelled(self, like: Ids, given: npt.ArrayLike | None) -> Ids:
        labels = self._label if given is None else given
        return np.broadcast_to(np.asarray(labels, np.int64), like.shape)

    def _add(self, nodes: Nodes) -> Ids:
        refuse_many(self.count + len(nodes.source), "too large")
        ids = np.arange(self.count, self.count + len(nodes.source), dtype=np.int64)
        self._nodes.append(nodes)
        self.count += len(ids)
        return ids

    def follow(self, before: npt.ArrayLike, after: npt.ArrayLike, *, acknowledged: bool = False) -> None:
        """Add an edge from each node of `before` to its partner in `after` (arrays broadcast)."""
        columns = [np.atleast_1d(np.asarray(value, np.int64)) for value in (before, after)]
        first, second = np.broadcast_arrays(*columns)
        self._edges.append((first, second, np.full(len(first), int(acknowledged))))

    def connect(self, connection: npt.ArrayLike) -> None:
        """Assign connections to all nodes so far: nodes with equal numbers share one."""
        nodes = self.nodes()
        nodes.connection = np.unique(np.broadcast_to(connection, self.count), return_inverse=True)[1].astype(np.int64)
        self._nodes = [nodes]

    def mark(self, name: str, node: int) -> None:
        """Report the finish time of `node` under `name`, in order of calls."""
        self.marks.setdefault(name, []).append(node)

    def nodes(self) -> Nodes:
        names = Nodes.__dataclass_fields__
        return Nodes(**{name: _joined([getattr(part, name) for part in self._nodes]) for name in names})

    def edges(self) -> tuple[Ids, Ids, Ids]:
        """Return (before, after, acknowledged) of all edges."""
        before, after, acknowledged = (_joined([part[at] for part in self._edges]) for at in range(3))
        return before, after, acknowledged

    def delay(self, message: int, step: int) -> None:
        """Let hosts take so long (ps) before each message, and before those that begin a step."""
        nodes, (before, after, _) = self.nodes(), self.edges()
        moves = nodes.destination != NOWHERE
        begins = moves.copy()
        begins[after] = False
        begins[after[~moves[before] | (nodes.source[before] != nodes.source[after])]] = True
        nodes.length = nodes.length + moves * (message + begins * step)
        self._nodes = [nodes]

    def roots(self) -> Ids:
        """Return the ids of the nodes without predecessors."""
        waits = np.zeros(self.count, np.bool_)
        waits[self.edges()[1]] = True
        return np.flatnonzero(~waits)

    def append(self, other: WorkloadGraph) -> Ids:
        """Add all of another plan; return the new ids of its nodes, in its order."""
        nodes, (before, after, acknowledged), offset = other.nodes(), other.edges(), self.count
        named = nodes.label != UNLABELLED
        nodes = replace(nodes, label=np.where(named, nodes.label + len(self.labels), self._label))
        self.labels += other.labels
        ids = self._add(nodes)
        self._edges.append((before + offset, after + offset, acknowledged))
        for name, marked in other.marks.items():
            for node in marked:
                self.mark(name, node + offset)
        return ids

    def after(self, other: WorkloadGraph, ready: Ids, waiting: Ids) -> Ids:
        """Append `other` between two rows of nodes, one node per host; return the new ids.

        The first nodes of host h wait for node ready[h]; node waiting[h] waits for everything h sent or received.
        """
        roots, nodes = other.roots(), other.nodes()
        ids = self.append(other)
        self.follow(ready[nodes.source[roots]], ids[roots])
        moves = nodes.destination != NOWHERE
        self.follow(ids, waiting[nodes.source])
        self.follow(ids[moves], waiting[nodes.destination[moves]])
        return ids


def _column(value: npt.ArrayLike) -> Ids:
    try:
        return np.atleast_1d(np.asarray(value, np.int64))
    except OverflowError:
        raise ConfigError(f"workload: {value!r} is too large; expected less than {1 << 63:,}") from None


def _joined(parts: list[Ids]) -> Ids:
    return np.concatenate([np.zeros(0, np.int64), *parts])
