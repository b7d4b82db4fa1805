"""Every collective, operation and size among 2 to 17 ranks gives what NumPy computes."""

from __future__ import annotations

import pytest

from tests.needs import require
from tests.train.pytorch.torch_ranks import SECONDS, ranks

pytestmark = pytest.mark.needs("torch", "jit")


@pytest.mark.parametrize(
    ("sizes", "shares_memory"),
    [  # trees and rings from 9 on, of three levels at 17
        pytest.param([9, 8, 7, 6, 5, 4, 3, 2], True, id="few"),
        pytest.param([17, 16, 13, 10], True, id="many"),
        pytest.param([15, 14, 12, 11], True, id="other", marks=pytest.mark.long),
        pytest.param([9, 8], False, id="network"),
        pytest.param([3, 2], False, id="network-few"),
    ],
)
def test_collectives_of_every_size_are_right(sizes: list[int], shares_memory: bool) -> None:
    require("torch", "jit")
    with ranks(sizes[0], shares_memory=shares_memory) as started:
        started.run("collectives_of_every_size", sizes, timeout=SECONDS)
