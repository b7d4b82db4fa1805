"""Tree all-reduce: sums flow up a binary tree, the result flows down, in chunks that follow each other."""

from __future__ import annotations

import numpy as np

from openmrc.sim.workloads.amounts import Bytes, bytes_of, ps_of
from openmrc.sim.workloads.groups import Placement, groups
from openmrc.sim.workloads.parameters import Amount, Count, Parameters
from openmrc.sim.workloads.plan import Hosts, Ids, Plan


class TreeAllReduce(Parameters, frozen=True, kw_only=True, tag="tree_all_reduce"):
    """Place k of a group has the places 2k + 1 and 2k + 2 below it."""

    size: Bytes  # of the whole vector, the same at every host
    group: Amount = 0  # hosts in a tree; 0: all in one
    placement: Placement = "contiguous"
    chunks: Count = 8  # pieces of the vector that travel one behind the other


def plan(hosts: Hosts, parameters: TreeAllReduce, seed: int) -> Plan:
    """Return the messages, ordered by chunk, up before down."""
    made = Plan(hosts.count)
    members = groups(hosts.count, parameters.group, parameters.placement, seed)
    piece = max(1, -(-bytes_of(parameters.size) // parameters.chunks))
    before: Ids | None = None
    for _ in range(parameters.chunks):
        up = _chunk(made, members, piece, ps_of(parameters.start))
        if before is not None:  # a host sends its chunks in order
            made.follow(before.ravel(), up.ravel(), acknowledged=True)
        before = up
    return made


def _chunk(made: Plan, members: Ids, piece: int, start: int) -> Ids:
    """Add one chunk's way up and down; return the ids of the way up, a column per place but the root."""
    below = np.arange(1, members.shape[1])
    above = (below - 1) // 2
    children, parents = members[:, below], members[:, above]
    up = made.messages(children.ravel(), parents.ravel(), piece, start).reshape(children.shape)
    down = made.messages(parents.ravel(), children.ravel(), piece, start).reshape(children.shape)
    inner = above > 0  # whose parent is not the root: column above - 1 is the parent's own
    made.follow(up[:, inner].ravel(), up[:, above[inner] - 1].ravel())
    made.follow(down[:, above[inner] - 1].ravel(), down[:, inner].ravel())
    for child in below[above == 0]:  # the root sends down what all its children have brought
        made.follow(np.repeat(up[:, child - 1], int((above == 0).sum())), down[:, above == 0].ravel())
    return up
