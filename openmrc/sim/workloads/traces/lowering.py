"""Operations of ranks as a plan: messages and computations of NICs.

A send ends when its last byte is acknowledged, a receive when its message has arrived and its dependencies have ended.
A message does not wait for its receive, because RDMA knows the target address in advance. A collective at a rank ends
when all its sent messages are acknowledged and all its received messages have arrived.
"""

import numpy as np

from openmrc.collectives.choice import Collective
from openmrc.errors import ConfigError
from openmrc.sim.workloads.joined import never_started, waves
from openmrc.sim.workloads.plan import LARGEST_MESSAGE, Ids, WorkloadGraph
from openmrc.sim.workloads.traces.collective import AlgorithmName, Lowered, lower
from openmrc.sim.workloads.traces.matching import Matched, matched
from openmrc.sim.workloads.traces.operations import NONE, OperationKind, Operations

MOST_NODES = 50_000_000  # messages and computations of a plan, about 150 bytes each with their edges


def plan_of(
    made: Operations, nics: Ids, hosts: int, algorithm: AlgorithmName, scale: float, start: int
) -> WorkloadGraph:
    """Return the plan; `nics` is the NIC of each rank, `scale` multiplies computations, `start` is ps."""
    met = matched(made)
    wave, ready = ordered(made, met)
    builder = _Builder(made, met, nics[made.column("rank")], WorkloadGraph(hosts), scale, start)
    rows = np.argsort(np.where(wave == NONE, 1 << 40, wave), kind="stable")
    builder.add(rows, algorithm)
    builder.follow(*one_at_a_time(made, wave, ready))
    _refuse_cycle(made, builder.plan, builder.row_of_nodes())
    return builder.plan


def ordered(made: Operations, met: Matched) -> tuple[Ids, Ids]:
    """Schedule every operation as early as possible, as if messages took no time; return its wave and its time (ps).

    NONE is the wave of those that never start, because they are in a cycle or behind one.
    """
    count = len(made.kind)
    before, after, takes = _edges(made, met, made.column("length"))
    nodes = count + len(met.members)
    wave, ready = waves(nodes, before, after, takes, np.zeros(nodes, np.int64))
    return wave[:count], ready[:count]


def _edges(made: Operations, met: Matched, length: Ids) -> tuple[Ids, Ids, Ids]:
    """Return all edges (before, after, ps between); a collective is an additional node after its members."""
    before, after, begun = (made.column(name) for name in ("before", "after", "begun"))
    count = len(made.kind)
    takes = np.where(begun == 1, 0, length[before])
    joins = np.flatnonzero(met.instance != NONE)
    ends = np.where((met.instance[before] != NONE) & (begun == 0), count + met.instance[before], before)
    return (
        np.concatenate([ends, met.send, joins]),
        np.concatenate([after, met.receive, count + met.instance[joins]]),
        np.concatenate([takes, np.zeros(len(met.send) + len(joins), np.int64)]),
    )


def one_at_a_time(made: Operations, wave: Ids, ready: Ids) -> tuple[Ids, Ids]:
    """Return edges (before, after) that serialize the computations of each processor, by earliest start.

    Time and wave both increase along every dependency, so these edges create no cycle.
    """
    kind, rank, lane, length = (made.column(name) for name in ("kind", "rank", "lane", "length"))
    rows = np.flatnonzero((kind == OperationKind.COMPUTE) & (length > 0) & (wave != NONE))
    rows = rows[np.lexsort((rows, wave[rows], ready[rows], lane[rows], rank[rows]))]
    same = (rank[rows[1:]] == rank[rows[:-1]]) & (lane[rows[1:]] == lane[rows[:-1]])
    return rows[:-1][same], rows[1:][same]


class _Builder:
    """Adds the nodes of operations, then the edges between them.

    `_head` is the first node of an operation, `_tail` the last; NONE where no dependency needs it.
    """

    def __init__(self, made: Operations, met: Matched, nic: Ids, plan: WorkloadGraph, scale: float, start: int) -> None:
        self._made, self._met, self._nic, self.plan = made, met, nic, plan
        self._scale, self._start = scale, start
        self._kind = made.column("kind")
        count = len(self._kind)
        self._head, self._tail = np.full(count, NONE), np.full(count, NONE)
        self._waits, self._ends, self._begins = (np.zeros(count, np.bool_) for _ in range(3))
        self._before, self._after, begun = (made.column(name) for name in ("before", "after", "begun"))
        self._begun = begun == 1
        self._waits[self._after], self._ends[self._before[~self._begun]] = True, True
        self._begins[self._before[self._begun]] = True
        self._known: list[tuple[Ids, Ids]] = []  # nodes and their operations
        named = [name or OperationKind(kind).name.lower() for name, kind in zip(made.names, made.kind, strict=True)]
        numbers = {name: plan.label(name) for name in dict.fromkeys(named)}
        plan.label("")
        self._labels = np.array([numbers[name] for name in named], np.int64)

    def add(self, rows: Ids, algorithm: AlgorithmName) -> None:
        """Add all operations; messages and collectives are numbered in the order of `rows`."""
        kind = self._kind[rows]
        self._compute(rows[kind == OperationKind.COMPUTE])
        self._send(rows[kind == OperationKind.SEND])
        self._receive()
        self._add_beginnings()
        done: set[int] = set()
        for instance in self._met.instance[rows[kind == OperationKind.COLLECTIVE]].tolist():
            if instance not in done:
                done.add(instance)
                self._collective(self._met.members[instance], algorithm)
        self.plan.label("")
        first = np.where(self._begun, self._head[self._before], self._tail[self._before])
        at_sender = (self._kind[self._before] == OperationKind.SEND) & ~self._begun
        for seen in (False, True):
            chosen = at_sender == seen
            self.plan.follow(first[chosen], self._head[self._after[chosen]], acknowledged=seen)

    def follow(self, before: Ids, after: Ids) -> None:
        """Add edges between computations."""
        self.plan.follow(self._tail[before], self._head[after])

    def row_of_nodes(self) -> Ids:
        """Return the operation of each node, or NONE."""
        found = np.full(self.plan.count, NONE)
        for nodes, rows in self._known:
            found[nodes] = rows
        return found

    def _computations(self, rows: Ids, length: Ids | int = 0) -> Ids:
        nodes = self.plan.computations(self._nic[rows], length, self._start, labels=self._labels[rows])
        self._known.append((nodes, rows))
        return nodes

    def _compute(self, rows: Ids) -> None:
        length = np.rint(self._made.column("length")[rows] * self._scale).astype(np.int64)
        self._head[rows] = self._tail[rows] = self._computations(rows, length)

    def _send(self, rows: Ids) -> None:
        peers = np.full(len(self._kind), NONE)
        peers[self._met.send] = self._nic[self._met.receive]
        size = np.maximum(1, self._made.column("size")[rows])  # an empty message is one packet
        large = np.flatnonzero(size > LARGEST_MESSAGE)
        if len(large):
            self._made.refuse(int(rows[large[0]]), f"{size[large[0]]:,} bytes; at most {LARGEST_MESSAGE:,} per message")
        apart = self._nic[rows] != peers[rows]
        near, far = rows[~apart], rows[apart]
        self._head[near] = self._tail[near] = self._computations(near)
        nodes = self.plan.messages(self._nic[far], peers[far], size[apart], self._start, labels=self._labels[far])
        self._known.append((nodes, far))
        self._head[far] = self._tail[far] = nodes

    def _receive(self) -> None:
        """Add nodes for receives with dependencies; other receives end with the arrival of their message."""
        send, receive = self._met.send, self._met.receive
        waits = self._waits[receive] | self._begins[receive]
        self._tail[receive[~waits]] = self._tail[send[~waits]]
        rows = receive[waits]
        self._head[rows] = self._tail[rows] = self._computations(rows)
        self.plan.follow(self._tail[send[waits]], self._tail[rows])

    def _add_beginnings(self) -> None:
        """Add a node for the beginning of each operation whose beginning others wait for."""
        rows = np.flatnonzero(self._begins & (self._kind != OperationKind.COLLECTIVE))
        begins = self._computations(rows)
        self.plan.follow(begins, self._head[rows])
        self._head[rows] = begins

    def _collective(self, rows: Ids, algorithm: AlgorithmName) -> None:
        made, first = self._made, int(rows[0])
        awaited = self._waits[rows] | self._begins[rows]
        begins = np.full(len(rows), NONE)
        begins[awaited] = self._computations(rows[awaited])
        self.plan.label_as(int(self._labels[first]))
        self.plan.kinds[self.plan.labels[int(self._labels[first])]] = Collective(made.collective[first]).name.lower()
        try:
            lowered = lower(
                self.plan, self._nic[rows][None], Collective(made.collective[first]), made.size[first], algorithm,
                self._start,
            )  # fmt: skip
        except ConfigError as error:
            made.refuse(first, str(error))
        if self.plan.count > MOST_NODES:
            raise ConfigError(f"{made.source}: more than {MOST_NODES:,} messages; simulate a part of the trace")
        ids = lowered.ids[0]
        self._known.append((ids, rows[lowered.sender]))
        self._head[rows[awaited]] = begins[awaited]
        gated = awaited[lowered.sender]
        self.plan.follow(begins[lowered.sender[gated]], ids[gated])
        self._end(rows, lowered, begins)

    def _end(self, rows: Ids, lowered: Lowered, begins: Ids) -> None:
        """Add the end of a collective at the ranks where an operation depends on it."""
        ids, matters = lowered.ids[0], self._ends[rows]
        ends = np.full(len(rows), NONE)
        ends[matters] = self._tail[rows[matters]] = self._computations(rows[matters])
        for at, acknowledged in ((lowered.sender, True), (lowered.receiver, False)):
            mine = matters[at]
            self.plan.follow(ids[mine], ends[at[mine]], acknowledged=acknowledged)
        both = matters & (begins != NONE)
        self.plan.follow(begins[both], ends[both])


def _refuse_cycle(made: Operations, plan: WorkloadGraph, row_of: Ids) -> None:
    """Refuse operations that wait for each other, by naming one such cycle."""
    before, after, _ = plan.edges()
    stuck = never_started(plan.count, before, after, np.zeros(plan.count, np.int64))
    if not len(stuck):
        return
    is_stuck = np.zeros(plan.count, np.bool_)
    is_stuck[stuck] = True
    within = is_stuck[before] & is_stuck[after]
    cause = dict(zip(after[within].tolist(), before[within].tolist(), strict=True))
    walked: dict[int, int] = {}
    node = int(stuck[0])
    while node not in walked:
        walked[node] = len(walked)
        node = cause[node]
    cycle = row_of[np.array(list(walked)[walked[node] :])]
    rows = list(dict.fromkeys(cycle[cycle != NONE].tolist()))[::-1]
    named = "; ".join(made.where(row) for row in rows[:6]) + ("; ..." if len(rows) > 6 else "")
    raise ConfigError(f"{made.source}: {len(rows)} operations wait for each other in a cycle: {named}")
