"""All-to-all: within each group every host sends to every other."""

import numpy as np

from openmrc.base.amounts import Bytes, bytes_of, ps_of
from openmrc.collectives import direct
from openmrc.sim.workloads.collectives.transfers import Placement, carry_out, groups
from openmrc.sim.workloads.plan import Amount, Ids, Parameters, WorkloadGraph, WorkloadHosts, refuse_many


class AllToAll(Parameters, frozen=True, kw_only=True, tag="all_to_all"):
    """Host r of a group sends to r + 1, r + 2, ... so that the load on receivers is even."""

    size: Bytes  # per pair
    group: Amount = 0  # hosts in a group; 0: all in one
    placement: Placement = "contiguous"
    window: Amount = 0  # messages of a host in progress at once; 0: all
    rounds: Amount = 0  # partners of each host; 0: all

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return the messages, ordered by round."""
        made = WorkloadGraph(hosts.count)
        members = groups(hosts.count, self.group, self.placement, seed)
        rounds = exchange(made, members, bytes_of(self.size), ps_of(self.start), self.rounds)
        if self.window:
            made.follow(rounds[: -self.window].ravel(), rounds[self.window :].ravel(), acknowledged=True)
        return made


def exchange(made: WorkloadGraph, members: Ids, size: int, start: int = 0, most: int = 0) -> Ids:
    """Add the messages of all rounds, or of `most`; return their ids, a row per round."""
    count = members.shape[1] - 1
    ranks = members.shape[1]
    refuse_many(min(count, most or count) * members.size, "rounds")
    rounds = [
        carry_out(made, members, direct.exchange(ranks, ahead), [ranks], size, start).ravel()
        for ahead in range(1, 1 + min(count, most or count))
    ]
    return np.array(rounds)
