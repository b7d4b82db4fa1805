"""Conversion of tensors to arrays over the same memory, and of torch's operations to `Op`.

NumPy lacks bfloat16, which has its own `DType`; complex numbers are pairs of real ones, 8-bit floats bytes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from openmrc.train.errors import UnsupportedError
from openmrc.train.reduction import DType, Op, dtype_of

Array = NDArray[Any]
_PREMUL = "PREMUL_SUM"
_COMPLEX = (Op.SUM, Op.AVG)
_COMPLEX_TYPES = {torch.complex32: "<f2", torch.complex64: "<f4", torch.complex128: "<f8"}  # of each part
_BYTE_TYPES = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)  # torch gains types over time
]
_ELEMENTS = {  # of arrays over tensors of a type
    torch.bool: "|b1",
    torch.uint8: "|u1",
    torch.int8: "|i1",
    torch.int16: "<i2",
    torch.int32: "<i4",
    torch.int64: "<i8",
    torch.uint16: "<u2",
    torch.uint32: "<u4",
    torch.uint64: "<u8",
    torch.float16: "<f2",
    torch.bfloat16: "<u2",
    torch.float32: "<f4",
    torch.float64: "<f8",
    **_COMPLEX_TYPES,
    **dict.fromkeys(_BYTE_TYPES, "|u1"),
}


class Given(NamedTuple):
    """An array over a tensor's memory."""

    array: Array
    dtype: DType | None  # None: the type of the array


def op_of(op: Any, tensor: Any) -> Op:
    """Convert torch's operation; UnsupportedError if it is unknown, or not defined for the tensor's type.

    PREMUL_SUM is the sum of tensors that `scaled` has multiplied.
    """
    kind = getattr(op, "op", op)
    if kind.name == _PREMUL:
        return Op.SUM
    if kind.name not in Op.__members__:
        raise UnsupportedError(f"op: {kind.name} is not one of {', '.join(Op.__members__)}")
    result = Op[kind.name]
    if tensor.is_complex() and result not in _COMPLEX:
        raise UnsupportedError(f"op: {result.name} is not defined for complex numbers ({tensor.dtype})")
    return result


def is_premultiplied(op: Any) -> bool:
    """Whether torch's operation multiplies by a factor first."""
    return bool(getattr(op, "op", op).name == _PREMUL)


def scaled(tensor: Any, op: Any, *, in_place: bool) -> Any:
    """Return what a rank contributes: its tensor, multiplied by the factor of PREMUL_SUM if that is the operation.

    `in_place`: the tensor is an output, so it takes the product; its version counter stays, as with the other
    operations.
    """
    if not is_premultiplied(op):
        return tensor
    _check(tensor)
    if not tensor.is_floating_point():
        raise UnsupportedError(f"op: PREMUL_SUM is for floating-point numbers, not {tensor.dtype}")
    _, factor = op.__getstate__()
    plain = tensor.detach() if not in_place else tensor.data  # `data` has a version counter of its own
    return plain.mul_(factor) if in_place else plain * factor


def reduced(tensor: Any) -> Given:
    """Return the array of a tensor for a reduction; UnsupportedError if its type cannot be reduced."""
    given = moved(tensor)
    if given.array.dtype == np.uint8 and tensor.dtype != torch.uint8:
        raise UnsupportedError(f"dtype: {tensor.dtype} cannot be reduced")
    return given


def moved(tensor: Any) -> Given:
    """Return the array of a tensor that is sent or received without arithmetic."""
    _check(tensor)
    return Given(_array_over(tensor), DType.BFLOAT16 if tensor.dtype == torch.bfloat16 else None)


def element_of(tensor: Any) -> tuple[DType, int]:
    """Return the type on the wire of a tensor's elements, and how many make up one of them (complex numbers: 2)."""
    given = moved(tensor)
    return dtype_of(given.array, given.dtype), 2 if tensor.dtype in _COMPLEX_TYPES else 1


class _Memory:
    """The memory of a tensor as NumPy's array interface describes it; the array keeps this object and the tensor.

    `Tensor.numpy` would mark the storage as not resizable for good, which FSDP1 needs it to be. The storage, of which
    torch keeps one object, tells how long the memory lives: arrays over it come and go with each call.
    """

    __slots__ = ("__array_interface__", "owner", "tensor")

    def __init__(self, tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None, element: str) -> None:
        self.tensor = tensor
        self.owner = tensor.untyped_storage()
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "strides": strides,  # bytes; None: contiguous
            "typestr": element,
            "data": (tensor.data_ptr(), False),
        }


def _array_over(tensor: Any) -> Array:
    """Return an array over a tensor's memory, which leaves no mark on the tensor."""
    element = _ELEMENTS.get(tensor.dtype)
    if element is None:
        raise UnsupportedError(f"dtype: {tensor.dtype} is not supported")
    parts = (2,) if tensor.dtype in _COMPLEX_TYPES else ()
    shape = (*tensor.shape, *parts)
    if not tensor.numel():
        return np.empty(shape, element)
    if tensor.is_contiguous():
        return np.asarray(_Memory(tensor, shape, None, element))
    size = tensor.element_size()
    strides = (*(stride * size for stride in tensor.stride()), *(size // 2 for _ in parts))
    return np.asarray(_Memory(tensor, shape, strides, element))


def arrays_of(tensors: Sequence[Any]) -> list[Array]:
    """Return the arrays of tensors that are sent or received; they must have the same type."""
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) > 1:
        raise UnsupportedError(
            f"dtype: the tensors of one call have different types: {', '.join(sorted(map(str, kinds)))}"
        )
    return [moved(tensor).array for tensor in tensors]


def _check(tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(f"tensor: {type(tensor).__name__} is not a tensor")
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"device: the tensor is on {tensor.device}; backend mrc supports only CPU tensors")
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"layout: {tensor.layout}; backend mrc supports only dense tensors")
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise UnsupportedError("tensor: quantized tensors and conjugate or negated views are not supported")
