"""Rows for packets: each shard allocates from and releases to its own list, so threads never share one.

The number needed depends on queue lengths, which a fault may increase without limit, so the pool grows between windows.
"""

from typing import Any

import numpy as np

from openmrc.core.jit import kernel
from openmrc.core.rows import Table, column, zeroed
from openmrc.errors import MrcError
from openmrc.sim.network.network_tables import NONE, Network

MOST = (1 << 31) - 1  # rows, as Hop.next counts them


@kernel
def allocate(network: Network, shard: int) -> int:
    """Return a free hop, or NONE."""
    owner = network.shards[shard]
    hop = owner.free
    if hop != NONE:
        owner.free = network.hops[hop].next
        owner.free_count -= 1
    elif owner.fresh < owner.fresh_end:
        hop = owner.fresh
        owner.fresh += 1
        network.hops[hop].frame = hop
    else:
        return NONE
    owner.allocated += 1
    return hop


@kernel
def release(network: Network, shard: int, hop: int) -> None:
    owner = network.shards[shard]
    network.hops[hop].next = owner.free
    owner.free = hop
    owner.free_count += 1
    owner.released += 1


@kernel
def available(network: Network, shard: int) -> int:
    """Return how many hops the shard can still allocate."""
    owner = network.shards[shard]
    return owner.free_count + owner.fresh_end - owner.fresh


@kernel
def lend(network: Network, giver: int, taker: int, count: int) -> None:
    """Move free hops between shards; call between windows only."""
    for _ in range(count):
        hop = allocate(network, giver)
        if hop == NONE:
            return
        release(network, taker, hop)
        network.shards[giver].allocated -= 1
        network.shards[taker].released -= 1


def grown(network: Network, more: int) -> Network:
    """Return the network with at least `more` additional rows for every shard; call between windows only."""
    shards, before = network.shards, len(network.hops)
    each = max(more, before // len(shards))
    after = before + each * len(shards)
    if after > MOST:
        raise MrcError(f"{before:,} packets are in flight, beyond the limit of {MOST:,}")
    made = network._replace(hops=longer(network.hops, after))
    for number in range(len(shards)):
        _free_the_rest(made, number)
        shards[number].fresh = before + number * each
        shards[number].fresh_end = before + (number + 1) * each
    return made


def longer(rows: Table[Any], count: int) -> Table[Any]:
    """Return a table of `count` rows that starts with those of another."""
    before = np.asarray(rows)
    made: Table[Any] = zeroed(before.dtype, count)
    np.asarray(made)[: len(before)] = before
    return made


def _free_the_rest(network: Network, shard: int) -> None:
    """Put a shard's rows that were never used on its free list."""
    owner = network.shards[shard]
    left = np.arange(owner.fresh, owner.fresh_end)
    if not len(left):
        return
    here = slice(owner.fresh, owner.fresh_end)
    column(network.hops, "frame")[here] = left
    column(network.hops, "next")[here] = np.append(left[1:], owner.free)
    owner.free = int(left[0])
    owner.free_count += len(left)
