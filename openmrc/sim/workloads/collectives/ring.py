"""Rings: all-reduce, reduce-scatter and all-gather, in which each host forwards pieces to the next.

An all-reduce of n hosts takes 2 (n - 1) steps of 1/n of the data each, the two halves n - 1 (Patarasuk and
Yuan, 2009). In step s, a host sends what it received in step s - 1.
"""

from openmrc.base.amounts import Bytes, bytes_of, ps_of
from openmrc.collectives import ring
from openmrc.sim.workloads.collectives.transfers import Placement, carry_out, groups
from openmrc.sim.workloads.plan import Amount, Ids, Parameters, WorkloadGraph, WorkloadHosts, refuse_many


class Ring(Parameters, frozen=True, kw_only=True):
    """Parameters of the three collectives."""

    size: Bytes  # of the whole vector, the same at every host
    group: Amount = 0  # hosts in a ring; 0: all in one
    placement: Placement = "contiguous"
    steps: Amount = 0  # 0: all

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return the messages, ordered by step."""
        made = WorkloadGraph(hosts.count)
        members = groups(hosts.count, self.group, self.placement, seed)
        halves = 2 if isinstance(self, RingAllReduce) else 1
        steps = halves * (members.shape[1] - 1)
        around(made, members, bytes_of(self.size), min(steps, self.steps or steps), ps_of(self.start))
        return made


class RingAllReduce(Ring, frozen=True, kw_only=True, tag="ring_all_reduce"):
    """Sum a vector over all hosts of a group, and leave the sum at each."""


class ReduceScatter(Ring, frozen=True, kw_only=True, tag="reduce_scatter"):
    """Sum a vector over all hosts of a group, and leave a part of the sum at each."""


class AllGather(Ring, frozen=True, kw_only=True, tag="all_gather"):
    """Distribute the parts of all hosts of a group to each of them."""


def around(made: WorkloadGraph, members: Ids, size: int, steps: int, start: int = 0) -> Ids:
    """Add `steps` steps of a ring through each row of `members`; return the ids, a row per step."""
    refuse_many(steps * members.size, "steps")
    ranks = members.shape[1]
    piece = max(1, -(-size // ranks))
    part = ring.all_reduce(ranks, steps).transfers
    ids = carry_out(made, members, part, [ranks] * steps, piece, start)
    return ids.reshape(len(members), steps, ranks).transpose(1, 0, 2).reshape(steps, members.size)
