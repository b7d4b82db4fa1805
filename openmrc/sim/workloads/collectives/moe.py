"""Mixture of experts: tokens are sent to the experts' hosts and back, and some experts are more popular.

Popularity falls with rank as rank ** -skew (Zipf); the ranking is drawn for every group and layer.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta

from openmrc.base.amounts import Bytes, Duration, bytes_of, ps_of
from openmrc.sim.workloads.collectives.transfers import Placement, groups
from openmrc.sim.workloads.plan import Amount, Count, Ids, Parameters, WorkloadGraph, WorkloadHosts, refuse_many


class MixtureOfExperts(Parameters, frozen=True, kw_only=True, tag="mixture_of_experts"):
    """One expert per host; each layer is dispatch, expert, combine."""

    size: Bytes  # dispatched per host and layer, to all experts together
    group: Amount = 0  # hosts that share one set of experts; 0: all
    placement: Placement = "contiguous"
    skew: Annotated[float, Meta(ge=0, le=4)] = 0.0  # 0: all experts equally popular
    layers: Count = 1
    expert: Duration = "0us"  # computation of an average expert; a popular one takes proportionally longer
    combine: bool = True

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return dispatches, computations and combines; a host's next layer waits for all it sent and received."""
        made = WorkloadGraph(hosts.count)
        members = groups(hosts.count, self.group, self.placement, seed)
        refuse_many(self.layers * members.size * (1 + self.combine) * members.shape[1], "layers")
        draw = np.random.default_rng(seed)
        everyone = np.arange(hosts.count)
        ready = made.computations(everyone, 0, ps_of(self.start))
        for _ in range(self.layers):
            sizes = bytes_of(self.size) * _popularity(members, self.skew, draw)
            ready = _layer(made, members, np.maximum(1, sizes.astype(np.int64)), ready, self)
        return made


def _popularity(
    members: Ids, skew: float, draw: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return each member's share of the tokens, a row per group; rows sum to one."""
    share = np.arange(1, members.shape[1] + 1) ** -skew
    return np.array([draw.permutation(share / share.sum()) for _ in members])


def _layer(made: WorkloadGraph, members: Ids, sizes: Ids, ready: Ids, parameters: MixtureOfExperts) -> Ids:
    count = members.shape[1]
    everyone = np.arange(made.hosts)
    average = sizes.mean(axis=1, keepdims=True)
    length = np.zeros(made.hosts, np.int64)
    length[members] = (ps_of(parameters.expert) * sizes / average).astype(np.int64)
    experts = made.computations(everyone, length)
    done = made.computations(everyone, 0)
    made.follow(experts, done)
    made.follow(ready, experts)  # a host's own tokens need no network
    for ahead in range(1, count):
        target = np.roll(members, -ahead, axis=1)
        amount = np.roll(sizes, -ahead, axis=1)
        sent = made.messages(members.ravel(), target.ravel(), amount.ravel())
        made.follow(ready[members.ravel()], sent)
        made.follow(sent, experts[target.ravel()])
        if parameters.combine:
            back = made.messages(target.ravel(), members.ravel(), amount.ravel())
            made.follow(experts[target.ravel()], back)
            made.follow(back, done[members.ravel()])
    return done
