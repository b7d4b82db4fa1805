"""Arrays that callers pass to collectives: checked, made contiguous, cut into the blocks of ranks."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.train.buffers import Blocks
from openmrc.train.errors import UnsupportedError

Array = NDArray[Any]


def contiguous(array: Array, writes: bool = False) -> tuple[Array, Callable[[], None] | None]:
    """Return (contiguous array, function that copies results back or None); `writes`: the group writes to it."""
    if array.flags.c_contiguous and (array.flags.writeable or not writes):
        return array, None
    if writes and not array.flags.writeable:
        raise UnsupportedError("array: read-only, and the result is written to it")
    copy = np.ascontiguousarray(array)

    def copy_back() -> None:
        array[...] = copy

    return copy, copy_back if writes else None


def in_and_out(array: Array, out: Array | None) -> tuple[Array, Array, Callable[[], None] | None]:
    """Return (input, output, function that copies the output back or None) of a reduction."""
    if out is None:
        flat, at_end = contiguous(array, True)
        return flat, flat, at_end
    if out.size != array.size or out.dtype != array.dtype:
        raise UnsupportedError(f"out: {out.size} elements of {out.dtype}, array: {array.size} of {array.dtype}")
    result, at_end = contiguous(out, True)
    return contiguous(array)[0], result, at_end


def check_apart(out: Array | Sequence[Array]) -> None:
    """Raise UnsupportedError if two outputs begin at the same address: the data of one rank would replace another's."""
    first: dict[int, int] = {}
    for index, each in enumerate(() if isinstance(out, np.ndarray) else out):
        other = first.setdefault(each.ctypes.data, index) if each.size else index
        if other != index:
            raise UnsupportedError(f"out: the arrays for ranks {other} and {index} are the same memory")


def _of_list(arrays: Sequence[Array]) -> tuple[Blocks, Callable[[], None] | None]:
    pairs = [contiguous(each, True) for each in arrays]
    ends = [end for _, end in pairs if end is not None]

    def copy_back() -> None:
        for end in ends:
            end()

    return Blocks.of_list([flat for flat, _ in pairs]), copy_back if ends else None


def per_rank(
    arrays: Array | Sequence[Array], like: Array, size: int, name: str
) -> tuple[Blocks, Callable[[], None] | None]:
    """Return the blocks of one array of `size` parts, or of one array per rank, each with the size of `like`."""
    if isinstance(arrays, np.ndarray):
        if arrays.size != like.size * size or arrays.dtype != like.dtype:
            raise UnsupportedError(
                f"{name}: {arrays.size} elements of {arrays.dtype}, expected {size} x {like.size} of {like.dtype}"
            )
        flat, at_end = contiguous(arrays, True)
        return Blocks.of_equal(flat, size), at_end
    if len(arrays) != size:
        raise UnsupportedError(f"{name}: {len(arrays)} arrays, expected one for each of {size} ranks")
    wrong = next((each for each in arrays if each.size != like.size or each.dtype != like.dtype), None)
    if wrong is not None:
        raise UnsupportedError(f"{name}: {wrong.size} elements of {wrong.dtype}, expected {like.size} of {like.dtype}")
    return _of_list(arrays)


def parts(
    arrays: Array | Sequence[Array], splits: Sequence[int] | None, size: int, name: str
) -> tuple[Blocks, Callable[[], None] | None, Array]:
    """Return the parts of one side of an all-to-all, and an array of its element type."""
    if not isinstance(arrays, np.ndarray):
        if len(arrays) != size:
            raise UnsupportedError(f"{len(arrays)} arrays, expected one for each of {size} ranks")
        return *_of_list(arrays), arrays[0]
    flat, at_end = contiguous(arrays, True)
    if splits is None:
        if flat.size % size:
            raise UnsupportedError(f"{flat.size} elements do not divide into {size} equal parts: pass {name}")
        return Blocks.of_equal(flat, size), at_end, flat
    if len(splits) != size or sum(splits) != flat.size or min(splits, default=0) < 0:
        raise UnsupportedError(f"{name}: {list(splits)} are not {size} parts of {flat.size} elements")
    return Blocks.of_flat(flat, list(itertools.accumulate(splits, initial=0))), at_end, flat
