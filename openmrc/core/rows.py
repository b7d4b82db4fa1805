"""Row types: one declaration gives names, types, units, memory layout and editor completion.

A row type is a class of annotated fields; `table(Row, count)` allocates that many zeroed records.
`table[i]` is a *view*: assignment writes through, both compiled and interpreted. Integers are
signed: compiled code makes a float of a signed and an unsigned one of 64 bits. `Int` is the default;
the narrower kinds exist for bulk tables only, where memory traffic decides speed, and read back as
plain `int` all the same. `UInt32` is for values that are only copied and compared. A flag is a
`Bool`, one byte. A field may hold several numbers: `Annotated[NDArray[np.int64], (np.int64, (count,))]`.

An `Instant` is an `Int` too: a time on its owner's clock, which `rebase` can set back.
"""

import contextlib
import mmap
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Protocol, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

Int = Annotated[int, np.int64]
Int32 = Annotated[int, np.int32]
Int16 = Annotated[int, np.int16]
Int8 = Annotated[int, np.int8]
UInt32 = Annotated[int, np.uint32]
Float = Annotated[float, np.float64]
Bool = Annotated[bool, np.bool_]
INSTANT = "instant"
Instant = Annotated[int, np.int64, INSTANT]  # ps; 0 or below, and NEVER or above: no time

CACHE_LINE = 64  # bytes
# Without MAP_NORESERVE (0x4000, mmap(2)) Linux refuses addresses beyond its memory, written or not.
_SPARSE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0x4000 if sys.platform == "linux" else 0)

Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)


class Table(Protocol[Row_co]):
    """A fixed-length array of `Row` records."""

    def __getitem__(self, index: int, /) -> Row_co: ...
    def __setitem__(self, index: int, row: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Row_co]: ...


def _field(name: str, convert: Callable[[Any], Any]) -> property:
    # Not np.recarray: a field called `size` or `data` would read NumPy's own attribute when
    # interpreted but the field when compiled. `convert` gives plain Python numbers, so narrow
    # fields do not overflow in interpreted arithmetic where compiled code widens to 64 bits.
    get, put = np.void.__getitem__, np.void.__setitem__
    return property(lambda self: convert(get(self, name)), lambda self, value: put(self, name, value))


def _reader(kind: np.dtype[Any]) -> Callable[[Any], Any]:
    """Return the conversion of a field to Python; a field of several numbers stays an array view."""
    if kind.subdtype is not None:
        return lambda value: value
    return float if kind == np.float64 else bool if kind == np.bool_ else int


def dtype_of(row: type) -> np.dtype[Any]:
    """Return the dtype whose scalars read `row`'s annotated fields as attributes."""
    hints = {name: get_args(hint)[1] for name, hint in get_type_hints(row, include_extras=True).items()}
    layout = np.dtype(list(hints.items()), align=True)
    fields = {name: _field(name, _reader(layout[name])) for name in hints}
    scalar = type(row.__name__, (np.void,), fields)
    return np.dtype((scalar, layout))


def offset_of(row: type, name: str) -> int:
    """Return how many bytes a field lies behind the start of its row."""
    fields: Any = dtype_of(row).fields
    return int(fields[name][1])


def table(row: type[Row], count: int) -> Table[Row]:
    """Allocate `count` zeroed rows, the first at the start of a cache line."""
    rows: Table[Row] = zeroed(dtype_of(row), count)
    return rows


def sparse_table(row: type[Row], count: int) -> Table[Row]:
    """Allocate zeroed rows of which few will be written: those alone take memory, in small pages.

    NumPy asks the kernel for huge pages, of which each row that is written would take a whole one (2 MB).
    """
    layout = dtype_of(row)
    memory = mmap.mmap(-1, max(1, count * layout.itemsize), flags=_SPARSE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    whole: Any = np.frombuffer(memory, np.uint8)
    rows: Table[Row] = whole[: count * layout.itemsize].view(layout)
    return rows


def zeroed(layout: np.dtype[Any], count: int) -> Any:
    """Return `count` zeroed records of a layout, aligned to cache lines: a record of one line then never spans two."""
    memory = np.zeros(count * layout.itemsize + CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE
    return memory[begin : begin + count * layout.itemsize].view(layout)


def column(rows: Table[Any], name: str) -> NDArray[Any]:
    """Return one field of every row as an array that writes through."""
    return np.asarray(rows)[name]
