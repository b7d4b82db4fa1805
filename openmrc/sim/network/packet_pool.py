"""Rows for packets: each shard takes from its own list and gives back to its own, so threads never meet."""

from __future__ import annotations

from openmrc.core.jit import kernel
from openmrc.sim.network.tables import NONE, Network


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
        owner.starved += 1
        return NONE
    owner.allocated += 1
    return hop


@kernel
def release(network: Network, shard: int, hop: int) -> None:
    """Give a hop back."""
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
    """Move free hops between shards; only between windows."""
    for _ in range(count):
        hop = allocate(network, giver)
        if hop == NONE:
            return
        release(network, taker, hop)
        network.shards[giver].allocated -= 1
        network.shards[taker].released -= 1
