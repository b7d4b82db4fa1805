"""Reductions of arrays: what a sum becomes as an average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.train.reduction import FLOATS, NUMPY, DType, divide

INTEGERS = [each for each in DType if each not in FLOATS and each != DType.BOOL]


@pytest.mark.parametrize("by", [1, 2, 3, 7, 128, 200, 70_000])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_averages_of_integers_are_rounded_towards_zero(dtype: Any, by: int) -> None:
    """As NCCL does (FuncSumPostDiv in its reduce_kernel.h): the magnitude is divided, the sign stays."""
    limits: Any = np.iinfo(str(NUMPY[dtype]))
    near = range(-3 * by - 1, 3 * by + 2)
    numbers = [each for each in (limits.min, limits.min + 1, limits.max, *near) if limits.min <= each <= limits.max]
    values = np.array(numbers, NUMPY[dtype])
    divide(values, dtype, by)
    assert values.tolist() == [(abs(each) // by) * (1 if each > 0 else -1) for each in numbers]
