"""Tree all-reduce: sums flow up a binary tree, the result flows down, in consecutive chunks."""

from openmrc.base.amounts import Bytes, bytes_of, ps_of
from openmrc.collectives import tree
from openmrc.sim.workloads.collectives.transfers import Placement, carry_out, groups
from openmrc.sim.workloads.plan import Amount, Count, Ids, Parameters, WorkloadGraph, WorkloadHosts, refuse_many


class TreeAllReduce(Parameters, frozen=True, kw_only=True, tag="tree_all_reduce"):
    """Host k of a group is the parent of hosts 2k + 1 and 2k + 2."""

    size: Bytes  # of the whole vector, the same at every host
    group: Amount = 0  # hosts in a tree; 0: all in one
    placement: Placement = "contiguous"
    chunks: Count = 8  # pieces of the vector, sent one after the other

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return the messages, ordered by chunk, up before down."""
        made = WorkloadGraph(hosts.count)
        members = groups(hosts.count, self.group, self.placement, seed)
        refuse_many(2 * self.chunks * (members.size - len(members)), "chunks")
        piece = max(1, -(-bytes_of(self.size) // self.chunks))
        before: Ids | None = None
        ranks = members.shape[1]
        plan, waves = tree.all_reduce(ranks).transfers, [ranks - 1, ranks - 1]
        for _ in range(self.chunks):
            ids = carry_out(made, members, plan, waves, piece, ps_of(self.start))
            up = ids[:, : ranks - 1]  # a column per host except the root
            if before is not None:  # a host sends its chunks in order
                made.follow(before.ravel(), up.ravel(), acknowledged=True)
            before = up
        return made
