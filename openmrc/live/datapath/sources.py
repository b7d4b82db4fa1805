"""The source table: which peer a datagram's source address and port belong to.

An open hash with linear probing. Entries come from peers' offers, so the table defends itself: the
hash starts from a secret number, `Peers` keeps the table at most half full, and every probe loop
is bounded by the size of the table. Deletion moves later entries of a chain back (Knuth, The Art
of Computer Programming volume 3, 6.4, algorithm R), so nothing is ever rebuilt.
"""

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import NONE
from openmrc.live.datapath.rows import DataPath

ANY_PORT = 0
_MULTIPLIER = 0x1000193  # FNV's, 25 bits: products of 31-bit words stay below 2**56
_LOW31 = 0x7FFFFFFF


@kernel
def find_source(datapath: DataPath, plane: int, high: int, low: int, port: int) -> int:
    """Return the peer with this address and port on this plane, or NONE."""
    slot = _slot(datapath, plane, high, low, port)
    if slot == NONE or not datapath.sources[slot].used:
        return NONE
    return datapath.sources[slot].peer


@kernel
def give(datapath: DataPath, plane: int, high: int, low: int, port: int, peer: int) -> bool:
    """Give one source to `peer`; False if it belongs to another, or the table is full."""
    slot = _slot(datapath, plane, high, low, port)
    if slot == NONE or (datapath.sources[slot].used and datapath.sources[slot].peer != peer):
        return False
    _write(datapath, slot, plane, high, low, port, peer)
    return True


@kernel
def take_back(datapath: DataPath, plane: int, high: int, low: int, port: int, peer: int) -> None:
    """Take one source out of the table if it is this peer's."""
    slot = _slot(datapath, plane, high, low, port)
    if slot != NONE and datapath.sources[slot].used and datapath.sources[slot].peer == peer:
        _clear(datapath, slot)


@kernel
def _slot(datapath: DataPath, plane: int, high: int, low: int, port: int) -> int:
    """Return the slot where this source is, or would go; NONE if the table is full."""
    mask = len(datapath.sources) - 1
    first = _home(datapath, plane, high, low, port)
    for step in range(mask + 1):
        slot = (first + step) & mask
        row = datapath.sources[slot]
        if not row.used or (row.low == low and row.high == high and row.port == port and row.plane == plane):
            return slot
    return NONE


@kernel
def _home(datapath: DataPath, plane: int, high: int, low: int, port: int) -> int:
    """Return the first slot to look at."""
    hashed = _mix(datapath.nic[0].source_key, low)
    hashed = _mix(hashed, low >> 31)
    hashed = _mix(hashed, high)
    hashed = _mix(hashed, high >> 31)
    return _mix(hashed, port << 5 ^ plane) & (len(datapath.sources) - 1)


@kernel
def _mix(hashed: int, word: int) -> int:
    product = (hashed ^ (word & _LOW31)) * _MULTIPLIER
    return (product ^ product >> 24) & _LOW31


@kernel
def _write(datapath: DataPath, slot: int, plane: int, high: int, low: int, port: int, peer: int) -> None:
    row = datapath.sources[slot]
    row.used = True
    row.plane = plane
    row.high = high
    row.low = low
    row.port = port
    row.peer = peer


@kernel
def _clear(datapath: DataPath, slot: int) -> None:
    """Empty a slot and move back what was placed after it because it was taken."""
    mask = len(datapath.sources) - 1
    hole = slot
    for step in range(1, mask + 1):
        at = (slot + step) & mask
        row = datapath.sources[at]
        if not row.used:
            break
        home = _home(datapath, row.plane, row.high, row.low, row.port)
        if (at - home) & mask >= (at - hole) & mask:
            _write(datapath, hole, row.plane, row.high, row.low, row.port, row.peer)
            hole = at
    datapath.sources[hole].used = False
