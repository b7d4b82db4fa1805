"""Memory regions: bounds and rights, checked for every packet (IBTA volume 1, 10.6)."""

from enum import IntEnum

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import NONE, Engine
from openmrc.wire.packet import NOWHERE


class Access(IntEnum):
    """Access rights of a region or a queue pair; values as `enum ibv_access_flags` of rdma-core."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    RELAXED_ORDERING = 1 << 20


@kernel
def register(engine: Engine, endpoint: int, r_key: int, va: int, length: int, access: int, pd: int, local: int) -> int:
    """Register a region that peers address from `va`; return its row, or NONE if all rows are in use."""
    node = engine.endpoints[endpoint]
    for step in range(node.region_count):
        row = _place(engine, endpoint, r_key, step)
        region = engine.regions[row]
        if region.r_key == 0:
            region.r_key = r_key
            region.va = va
            region.length = length
            region.access = access
            region.pd = pd
            region.local = local
            return row
    return NONE


@kernel
def deregister(engine: Engine, endpoint: int, r_key: int) -> int:
    """Deregister the region with this key and return its row, or NONE. Later packets to it are refused."""
    row = _by_key(engine, endpoint, r_key)
    if row != NONE:
        engine.regions[row].r_key = 0
    return row


@kernel
def locate(engine: Engine, qp: int, r_key: int, va: int, length: int) -> int:
    """Return the local address of `length` bytes at `va`, or NOWHERE if the peer may not write there."""
    queue_pair = engine.qps[qp]
    row = _by_key(engine, queue_pair.endpoint, r_key)
    if row == NONE:
        return NOWHERE
    region = engine.regions[row]
    offset = va - region.va
    allowed = region.access & queue_pair.access & Access.REMOTE_WRITE
    if allowed == 0 or region.pd != queue_pair.pd or offset < 0 or offset > region.length - length:
        return NOWHERE
    return region.local + offset


@kernel
def _by_key(engine: Engine, endpoint: int, r_key: int) -> int:
    node = engine.endpoints[endpoint]
    if r_key == 0:
        return NONE
    for step in range(node.region_count):
        row = _place(engine, endpoint, r_key, step)
        if engine.regions[row].r_key == r_key:
            return row
    return NONE


@kernel
def _place(engine: Engine, endpoint: int, r_key: int, step: int) -> int:
    # Consecutive keys are found in one step; an unknown key costs one bounded scan.
    node = engine.endpoints[endpoint]
    return node.region_base + (r_key + step) % node.region_count
