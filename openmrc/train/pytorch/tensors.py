"""Conversion of tensors to arrays over the same memory, and of torch's operations to `Op`.

NumPy lacks some of torch's element types. Bfloat16 has its own `DType`; complex numbers are sent and added as pairs of
real numbers; 8-bit floats, which cannot be reduced, are sent as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from openmrc.train.errors import UnsupportedError
from openmrc.train.reduction import DType, Op

Array = NDArray[Any]
_COMPLEX = (Op.SUM, Op.AVG)


class Given(NamedTuple):
    """An array over a tensor's memory."""

    array: Array
    dtype: DType | None  # None: the type of the array


def op_of(op: Any, tensor: Any) -> Op:
    """Convert torch's operation; UnsupportedError if it is unknown, or not defined for the tensor's type."""
    kind = getattr(op, "op", op)
    if kind.name not in Op.__members__:
        raise UnsupportedError(f"op: {kind.name} is not one of {', '.join(Op.__members__)}")
    result = Op[kind.name]
    if tensor.is_complex() and result not in _COMPLEX:
        raise UnsupportedError(f"op: {result.name} is not defined for complex numbers ({tensor.dtype})")
    return result


def reduced(tensor: Any) -> Given:
    """Return the array of a tensor for a reduction; UnsupportedError if its type cannot be reduced."""
    given = moved(tensor)
    if given.array.dtype == np.uint8 and tensor.dtype != torch.uint8:
        raise UnsupportedError(f"dtype: {tensor.dtype} cannot be reduced")
    return given


def moved(tensor: Any) -> Given:
    """Return the array of a tensor that is sent or received without arithmetic."""
    _check(tensor)
    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        return Given(plain.view(torch.uint16).numpy(), DType.BFLOAT16)
    if plain.is_complex():
        return Given(torch.view_as_real(plain).numpy(), None)
    try:
        return Given(plain.numpy(), None)
    except TypeError:
        return Given(plain.view(torch.uint8).numpy(), None)


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
