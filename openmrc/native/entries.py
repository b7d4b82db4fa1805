"""The entries of the native library: what C calls, each with addresses and 64-bit numbers.

`at` is the address of the table handles; see `live.datapath.handles`. All but `set_up`, `take_in`,
`send_out` and `recover` take the loop lock themselves.
"""

from typing import Any, NamedTuple

from openmrc.core.jit import kernel
from openmrc.core.object_code import MATRIX, WORD, WORDS
from openmrc.engine import lifecycle
from openmrc.engine.responder import regions
from openmrc.engine.state import one_endpoint
from openmrc.engine.state.queue_pairs import QPN_MASK
from openmrc.live.datapath import handles, remote_nics
from openmrc.live.datapath.libc import monotonic
from openmrc.live.datapath.loop import attendance, iteration, opening, operations, recovery
from openmrc.native.ctl_entries import CTL_ENTRIES
from openmrc.wire.layout import Matrix


def set_up(at: int, seed: int, version: int) -> int:
    """Write the first contents of all tables; `version` is that of the planes' IP addresses."""
    engine = handles.engine_at(at)
    one_endpoint.set_up(engine, seed)
    opening.open_tables(engine, handles.datapath_at(at), version)
    return 0


def add_peer(at: int, peer: int, ways: Matrix, ports: Matrix) -> int:
    """Add a remote NIC, see `remote_nics.add`."""
    datapath = handles.datapath_at(at)
    attendance.acquire(datapath)
    now = monotonic(datapath.clock[0], datapath.nic[0].epoch)
    added = remote_nics.add(handles.engine_at(at), datapath, now, peer, ways, ports)
    attendance.release(datapath)
    return added


def remove_peer(at: int, peer: int, ways: Matrix, ports: Matrix) -> int:
    """Remove a remote NIC that was added with the same arguments."""
    datapath = handles.datapath_at(at)
    attendance.acquire(datapath)
    remote_nics.remove(datapath, peer, ways, ports)
    attendance.release(datapath)
    return 0


def add_region(at: int, r_key: int, va: int, length: int, access: int, pd: int, local: int) -> int:
    """Register memory that peers address from `va`; return its row, -1 if there is none left."""
    datapath = handles.datapath_at(at)
    attendance.acquire(datapath)
    row = regions.register(handles.engine_at(at), 0, r_key, va, length, access, pd, local)
    attendance.release(datapath)
    return row


def remove_region(at: int, r_key: int) -> int:
    """Deregister memory, and fail the queue pairs that have open writes from it; return how many there were."""
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    attendance.acquire(datapath)
    regions.deregister(engine, 0, r_key)
    failed = lifecycle.end_region(engine, monotonic(datapath.clock[0], datapath.nic[0].epoch), 0, r_key)
    attendance.release(datapath)
    return failed


def renew_number(at: int, qp: int, random: int) -> int:
    """Give a queue pair in RESET another number, from a random one of at least 24 bits; return it."""
    engine = handles.engine_at(at)
    row = engine.qps[qp]
    row.qpn = renewed(row.qpn, random, engine.endpoints[0].qpn_slot_mask + 1)
    return int(row.qpn)


@kernel
def renewed(qpn: int, random: int, step: int) -> int:
    """Return a number with the same low bits, other than `qpn` and the one a `step` before it."""
    further = random % ((QPN_MASK + 1) // step - 1)
    return (qpn + further * step) & QPN_MASK


class NativeEntry(NamedTuple):
    """A function that C calls."""

    function: Any  # or an entry, whose code may be in the cache
    arguments: tuple[Any, ...]  # WORD, WORDS or MATRIX each

    @property
    def names(self) -> tuple[str, ...]:
        function = getattr(self.function, "py_func", self.function)
        return tuple(function.__code__.co_varnames[: len(self.arguments)])


def _of_words(entry: Any) -> NativeEntry:
    """Return an entry that takes numbers only, with their types."""
    return NativeEntry(entry, (WORD,) * entry.py_func.__code__.co_argcount)


_LOOP: tuple[Any, ...] = (iteration.take_in, iteration.send_out, recovery.recover, *attendance.ENTRIES)
ENTRIES: dict[str, NativeEntry] = {  # by their names in C
    "set_up": NativeEntry(set_up, (WORD,) * 3),
    **{entry.py_func.__name__: _of_words(entry) for entry in _LOOP},
    "change": NativeEntry(operations.change, (WORD, WORD, WORDS)),
    "move": NativeEntry(operations.move, (WORD, WORD, WORD, WORDS)),
    "add_peer": NativeEntry(add_peer, (WORD, WORD, MATRIX, MATRIX)),
    "remove_peer": NativeEntry(remove_peer, (WORD, WORD, MATRIX, MATRIX)),
    "add_region": NativeEntry(add_region, (WORD,) * 7),
    "remove_region": NativeEntry(remove_region, (WORD,) * 2),
    "renew_number": NativeEntry(renew_number, (WORD,) * 3),
    **{name: NativeEntry(*entry) for name, entry in CTL_ENTRIES.items()},
}
