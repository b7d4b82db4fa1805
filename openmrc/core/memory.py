"""Memory access by address, for kernels: one instruction each when compiled, plain Python otherwise."""

import ctypes
import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, type_callable

from openmrc.core.jit import kernel
from openmrc.core.rows import CACHE_LINE


def prefetch(address: int) -> None:
    """Prefetch the cache line at a memory address. Invalid addresses are allowed: a prefetch never faults."""


@kernel
def prefetch_row(rows: Any, index: int) -> None:
    """Prefetch the beginning of a row; an index outside the table is allowed."""
    prefetch(rows.ctypes.data + index * rows.itemsize)


@kernel
def field_address(rows: Any, index: int, offset: int) -> int:
    """Return the memory address of a field of a row, `offset` bytes behind its start (`rows.offset_of`)."""
    return int(rows.ctypes.data + index * rows.itemsize + offset)


@kernel
def prefetch_lines(rows: Any, index: int, first: int, count: int) -> None:
    """Prefetch `count` cache lines of a row from line `first` on; an index outside the table is allowed."""
    begin = rows.ctypes.data + index * rows.itemsize + first * CACHE_LINE
    for line in range(count):
        prefetch(begin + line * CACHE_LINE)


def load_be64(address: int) -> int:
    """Return the eight bytes at a memory address, of any alignment, as a signed big-endian number."""
    return int.from_bytes(ctypes.string_at(int(address), 8), "big", signed=True)


def store_be32(address: int, word: int) -> None:
    """Write the low 32 bits of a number at a memory address, of any alignment, in big-endian order."""
    ctypes.memmove(int(address), (int(word) & 0xFFFFFFFF).to_bytes(4, "big"), 4)


def stream_line(target: int, source: int) -> None:
    """Copy a cache line past the caches; `target` is a multiple of its length. Call `fence` before others read."""
    ctypes.memmove(int(target), int(source), CACHE_LINE)


def fence() -> None:
    """Order all earlier stores, also those past the caches, before all later ones."""


def load_acquire(address: int) -> int:
    """Return the aligned eight bytes at a memory address; later loads see what was stored before they were released."""
    return ctypes.c_int64.from_address(int(address)).value


def store_release(address: int, number: int) -> None:
    """Write eight aligned bytes at a memory address, visible to `load_acquire` after all earlier stores."""
    ctypes.c_int64.from_address(int(address)).value = int(number)


_BYTE, _WORD, _LONG = (ir.IntType(bits) for bits in (8, 32, 64))
_LINE = ir.VectorType(_LONG, CACHE_LINE // 8)
_function: Any = cgutils.get_or_insert_function  # Numba's functions have no types
_type_callable: Any = type_callable
_lower_builtin: Any = lower_builtin


def _instruction(function: Callable[..., Any], signature: Callable[..., Any], emit: Callable[..., Any]) -> None:
    """Have compiled code do what `emit(builder, *arguments)` writes where it calls `function`.

    `signature` takes the same arguments and returns their types and that of the result.
    """

    def lowered(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = emit(builder, *arguments)
        return context.get_dummy_value() if signature.return_type == types.void else made

    names = inspect.signature(function).parameters
    _type_callable(function)(lambda _context: signature)
    _lower_builtin(function, *signature(*names).args)(lowered)


def _place(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _ahead(builder: Any, address: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _WORD, _WORD, _WORD])
    read, keep, data = _WORD(0), _WORD(3), _WORD(1)
    called = _function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(called, [_place(builder, address, _BYTE), read, keep, data])


def _load(builder: Any, address: Any) -> Any:
    return builder.bswap(builder.load(_place(builder, address, _LONG), align=1))


def _store(builder: Any, address: Any, word: Any) -> None:
    builder.store(builder.bswap(builder.trunc(word, _WORD)), _place(builder, address, _WORD), align=1)


def _stream(builder: Any, target: Any, source: Any) -> None:
    line = builder.load(_place(builder, source, _LINE), align=1)
    stored = builder.store(line, _place(builder, target, _LINE), align=CACHE_LINE)
    stored.set_metadata("nontemporal", builder.module.add_metadata([_WORD(1)]))


def _acquire(builder: Any, address: Any) -> Any:
    return builder.load_atomic(_place(builder, address, _LONG), "acquire", 8)


def _release(builder: Any, address: Any, number: Any) -> None:
    builder.store_atomic(number, _place(builder, address, _LONG), "release", 8)


_instruction(prefetch, lambda address: types.void(types.int64), _ahead)
_instruction(load_be64, lambda address: types.int64(types.int64), _load)
_instruction(store_be32, lambda address, word: types.void(types.int64, types.int64), _store)
_instruction(stream_line, lambda target, source: types.void(types.int64, types.int64), _stream)
_instruction(load_acquire, lambda address: types.int64(types.int64), _acquire)
_instruction(store_release, lambda address, number: types.void(types.int64, types.int64), _release)
_instruction(fence, lambda: types.void(), lambda builder: builder.fence("seq_cst"))
