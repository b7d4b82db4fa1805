"""Memory access by address, for kernels: one instruction each when compiled, plain Python otherwise."""

import ctypes
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from openmrc.core.jit import INLINED, kernel
from openmrc.core.rows import CACHE_LINE


def prefetch(address: int) -> None:
    """Prefetch the cache line at a memory address. Invalid addresses are allowed: a prefetch never faults."""


def prefetch_row(rows: Any, index: int) -> None:
    """Prefetch the beginning of a row; an index outside the table is allowed."""


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
_function: Any = cgutils.get_or_insert_function


def _ahead_code(_context: Any, address: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _WORD, _WORD, _WORD])
        read, keep, data = _WORD(0), _WORD(3), _WORD(1)
        builder.call(_function(builder.module, kind, "llvm.prefetch.p0i8"), [pointer, read, keep, data])
        return context.get_dummy_value()

    return types.void(address), emit


def _load_code(_context: Any, address: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(builder.load(builder.inttoptr(arguments[0], _LONG.as_pointer()), align=1))

    return types.int64(address), emit


def _store_code(_context: Any, address: Any, word: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        swapped = builder.bswap(builder.trunc(arguments[1], _WORD))
        builder.store(swapped, builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(address, types.int64), emit


def _stream_code(_context: Any, target: Any, source: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = builder.load(builder.inttoptr(arguments[1], _LINE.as_pointer()), align=1)
        stored = builder.store(line, builder.inttoptr(arguments[0], _LINE.as_pointer()), align=CACHE_LINE)
        stored.set_metadata("nontemporal", builder.module.add_metadata([_WORD(1)]))
        return context.get_dummy_value()

    return types.void(target, source), emit


def _order_code(_context: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


def _acquire_code(_context: Any, address: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], _LONG.as_pointer()), "acquire", 8)

    return types.int64(address), emit


def _release_code(_context: Any, address: Any, number: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _LONG.as_pointer())
        builder.store_atomic(arguments[1], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(address, types.int64), emit


# Called without the compiler's context, which their definitions take.
_ahead: Any = intrinsic(_ahead_code)
_load: Any = intrinsic(_load_code)
_store: Any = intrinsic(_store_code)
_stream: Any = intrinsic(_stream_code)
_order: Any = intrinsic(_order_code)
_acquire: Any = intrinsic(_acquire_code)
_release: Any = intrinsic(_release_code)
overload(prefetch, jit_options=INLINED)(lambda address: lambda address: _ahead(address))
overload(prefetch_row, jit_options=INLINED)(
    lambda rows, index: lambda rows, index: _ahead(rows.ctypes.data + index * rows.itemsize)
)

overload(load_be64, jit_options=INLINED)(lambda address: lambda address: _load(address))
overload(store_be32, jit_options=INLINED)(lambda address, word: lambda address, word: _store(address, word))
overload(stream_line, jit_options=INLINED)(lambda target, source: lambda target, source: _stream(target, source))
overload(load_acquire, jit_options=INLINED)(lambda address: lambda address: _acquire(address))
overload(store_release, jit_options=INLINED)(lambda address, number: lambda address, number: _release(address, number))
overload(fence, jit_options=INLINED)(lambda: lambda: _order())
