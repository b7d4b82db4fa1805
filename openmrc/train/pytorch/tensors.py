"""Tensors as arrays over the same memory, and torch's operations as ours.

NumPy lacks some of torch's element types. Bfloat16 is reduced as such; complex numbers travel and add up as pairs of
real ones; the 8-bit floats, which nobody reduces, travel as bytes.
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
    dtype: DType | None  # where the array's own type does not say it


def op_of(op: Any, tensor: Any) -> Op:
    """Return torch's reduction as ours; UnsupportedError if there is none, or none for the tensor's type."""
    kind = getattr(op, "op", op)
    if kind.name not in Op.__members__:
        raise UnsupportedError(f"op: {kind.name} is not one of {', '.join(Op.__members__)}")
    result = Op[kind.name]
    if tensor.is_complex() and result not in _COMPLEX:
        raise UnsupportedError(f"op: {result.name} is not for complex numbers ({tensor.dtype})")
    return result


def reduced(tensor: Any) -> Given:
    """Return a tensor that takes part in a reduction."""
    given = moved(tensor)
    if given.array.dtype == np.uint8 and tensor.dtype != torch.uint8:
        raise UnsupportedError(f"dtype: {tensor.dtype} cannot be reduced")
    return given


def moved(tensor: Any) -> Given:
    """Return a tensor that is sent or received as it is."""
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
    """Return tensors that are sent or received, which must be of one type."""
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) > 1:
        raise UnsupportedError(f"dtype: the tensors of one call differ: {', '.join(sorted(map(str, kinds)))}")
    return [moved(tensor).array for tensor in tensors]


def _check(tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(f"tensor: a {type(tensor).__name__} is not one")
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"device: the tensor is on {tensor.device}; backend mrc takes CPU tensors only")
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"layout: {tensor.layout}; backend mrc takes dense tensors only")
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise UnsupportedError("tensor: quantized ones, and views that conjugate or negate, cannot be sent")
