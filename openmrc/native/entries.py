"""The entries of the native library: what C calls, each with addresses and 64-bit numbers.

`at` is the address of the table handles; see `live.datapath.handles`. Entries of the loop and of queue pairs take its
lock themselves, but for the two halves of an iteration and `recover`. Around others that need it the C function takes
it, which `description` writes.
"""

from types import CodeType
from typing import Any, NamedTuple

from openmrc.core.calls import WORD
from openmrc.core.jit import kernel
from openmrc.engine import lifecycle
from openmrc.engine.responder import regions
from openmrc.engine.state import one_endpoint
from openmrc.engine.state.queue_pairs import QPN_MASK
from openmrc.live.datapath import handles, remote_nics
from openmrc.live.datapath.libc import monotonic
from openmrc.live.datapath.loop import attendance, iteration, opening, operations, recovery
from openmrc.native.ctl_entries import CTL_OPERATIONS, CTL_RULES


def set_up(at: int, seed: int, version: int) -> int:
    """Write the first contents of all tables; `version` is that of the planes' IP addresses."""
    engine = handles.engine_at(at)
    one_endpoint.set_up(engine, seed)
    opening.open_tables(engine, handles.datapath_at(at), version)
    return 0


def lock_loop(at: int) -> int:
    """Acquire the loop lock and read the clock."""
    datapath = handles.datapath_at(at)
    attendance.acquire(datapath)
    datapath.nic[0].now = monotonic(datapath.clock[0], datapath.nic[0].epoch)
    return 0


def unlock_loop(at: int) -> int:
    """Release the loop lock."""
    attendance.release(handles.datapath_at(at))
    return 0


def add_region(at: int, r_key: int, va: int, length: int, access: int, pd: int, local: int) -> int:
    """Register memory that peers address from `va`; return its row, -1 if there is none left."""
    return regions.register(handles.engine_at(at), 0, r_key, va, length, access, pd, local)


def remove_region(at: int, r_key: int) -> int:
    """Deregister memory, and fail the queue pairs that have open writes from it; return how many there were."""
    engine = handles.engine_at(at)
    regions.deregister(engine, 0, r_key)
    return lifecycle.end_region(engine, handles.datapath_at(at).nic[0].now, 0, r_key)


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
    is_locked: bool = False  # the C function holds the loop lock around it

    @property
    def names(self) -> tuple[str, ...]:
        return _code(self.function).co_varnames[: len(self.arguments)]


def _code(function: Any) -> CodeType:
    code: CodeType = getattr(function, "py_func", function).__code__
    return code


def _of_words(*functions: Any, is_locked: bool = False) -> dict[str, NativeEntry]:
    """Return entries that take numbers only, by their names."""
    codes = map(_code, functions)
    return {
        code.co_name: NativeEntry(function, (WORD,) * code.co_argcount, is_locked)
        for function, code in zip(functions, codes, strict=True)
    }


ENTRIES: dict[str, NativeEntry] = {  # by their names in C; those that are called by others come first
    **_of_words(lock_loop, unlock_loop, set_up, renew_number),
    **_of_words(iteration.take_in, iteration.send_out, recovery.recover, *attendance.ENTRIES),
    **_of_words(add_region, remove_region, *CTL_OPERATIONS, is_locked=True),
    **{_code(each).co_name: NativeEntry(each, arguments) for each, arguments in operations.ENTRIES},
    **{_code(each).co_name: NativeEntry(each, arguments, is_locked=True) for each, arguments in remote_nics.ENTRIES},
    **{name: NativeEntry(*entry) for name, entry in CTL_RULES.items()},
}
