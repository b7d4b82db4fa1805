"""Element types and reductions: vectorised, in place, in the order of the caller."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.train.errors import UnsupportedError

Array = NDArray[Any]
_PASS = 1 << 15  # 16-bit floats widened in one pass, so that the intermediates stay in the cache


class Op(IntEnum):
    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class DType(IntEnum):
    BOOL = 0
    UINT8 = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    FLOAT16 = 6
    BFLOAT16 = 7  # NumPy has no such type: arrays are uint16
    FLOAT32 = 8
    FLOAT64 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12


_NUMPY = {
    DType.BOOL: np.bool_,
    DType.UINT8: np.uint8,
    DType.INT8: np.int8,
    DType.INT16: np.int16,
    DType.INT32: np.int32,
    DType.INT64: np.int64,
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: np.uint16,
    DType.FLOAT32: np.float32,
    DType.FLOAT64: np.float64,
    DType.UINT16: np.uint16,
    DType.UINT32: np.uint32,
    DType.UINT64: np.uint64,
}
NUMPY = {kind: np.dtype(scalar) for kind, scalar in _NUMPY.items()}
_OF_NUMPY = {np.dtype(scalar): kind for kind, scalar in _NUMPY.items() if kind != DType.BFLOAT16}
FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})
_BITWISE = frozenset({Op.BAND, Op.BOR, Op.BXOR})
_UFUNCS: dict[Op, np.ufunc] = {
    Op.SUM: np.add,
    Op.AVG: np.add,
    Op.PRODUCT: np.multiply,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.BAND: np.bitwise_and,
    Op.BOR: np.bitwise_or,
    Op.BXOR: np.bitwise_xor,
}

Fold = Callable[[Array, Array, Array], None]


def dtype_of(array: Array, dtype: DType | None) -> DType:
    """Return the element type of an array; `dtype` overrides NumPy's (BFLOAT16 in uint16 arrays)."""
    if dtype is not None:
        if NUMPY[dtype] != array.dtype:
            raise UnsupportedError(f"dtype: {dtype.name} requires arrays of {NUMPY[dtype]}, not {array.dtype}")
        return dtype
    try:
        return _OF_NUMPY[array.dtype]
    except KeyError:
        known = ", ".join(sorted(str(kind) for kind in _OF_NUMPY))
        raise UnsupportedError(f"dtype: {array.dtype} is not supported; supported are {known}") from None


def check(op: Op, dtype: DType) -> None:
    """Raise UnsupportedError if the operation does not support the type."""
    if op in _BITWISE and dtype in FLOATS:
        raise UnsupportedError(f"op: {op.name} is for integers and booleans, not {dtype.name.lower()}")
    if op == Op.AVG and dtype == DType.BOOL:
        raise UnsupportedError("op: AVG is for numbers, not bool")


def fold_of(op: Op, dtype: DType) -> Fold:
    """Return `fold(a, b, out)`, which sets out = a op b elementwise; out may be a or b."""
    ufunc = _UFUNCS[op]
    if dtype == DType.BFLOAT16:
        return lambda a, b, out: _fold_wide(ufunc, a, b, out, _from_bfloat16, _to_bfloat16)
    if dtype == DType.FLOAT16:
        return lambda a, b, out: _fold_wide(ufunc, a, b, out, _from_float16, _to_float16)
    if dtype == DType.BOOL and op == Op.PRODUCT:
        ufunc = np.logical_and
    return lambda a, b, out: _fold(ufunc, a, b, out)


def divide(values: Array, dtype: DType, by: int) -> None:
    """Divide `values` in place, a sum into an average; integers round towards zero, as in NCCL (FuncSumPostDiv)."""
    if dtype == DType.BFLOAT16:
        for part in _parts(len(values)):
            values[part] = _to_bfloat16(_from_bfloat16(values[part]) / np.float32(by))
    elif dtype in FLOATS:
        np.divide(values, values.dtype.type(by), out=values)
    else:
        for part in _parts(len(values)):
            values[part] = _quotient(values[part], by)


def _quotient(values: Array, by: int) -> Array:
    """Return integers divided by `by`, which may be more than their type holds, and rounded towards zero."""
    wide = values if values.itemsize == 8 else values.astype(np.int64)
    divisor = wide.dtype.type(by)
    result: Array = wide // divisor + ((wide < 0) & (wide % divisor != 0))
    return result


def _fold(ufunc: np.ufunc, a: Array, b: Array, out: Array) -> None:
    with np.errstate(all="ignore"):  # overflow and NaN are valid results, as in other collective libraries
        ufunc(a, b, out=out)


def _fold_wide(
    ufunc: np.ufunc, a: Array, b: Array, out: Array, widen: Callable[[Array], Array], narrow: Callable[[Array], Array]
) -> None:
    with np.errstate(all="ignore"):
        for part in _parts(len(out)):
            out[part] = narrow(ufunc(widen(a[part]), widen(b[part])))


def _parts(length: int) -> list[slice]:
    return [slice(first, first + _PASS) for first in range(0, length, _PASS)]


def _from_float16(values: Array) -> Array:
    return values.astype(np.float32)


def _to_float16(values: Array) -> Array:
    return values.astype(np.float16)


def _from_bfloat16(values: Array) -> Array:
    return (values.astype(np.uint32) << 16).view(np.float32)


def _to_bfloat16(values: Array) -> Array:
    """Round to nearest, ties to even; preserve NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)
