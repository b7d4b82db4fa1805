"""Every collective, operation and size among 2 to 17 ranks gives what NumPy computes."""

from __future__ import annotations

import pytest

from tests.needs import require
from tests.train.pytorch.torch_ranks import SECONDS, ranks

pytestmark = pytest.mark.needs("torch", "jit")


@pytest.mark.parametrize(
    ("most", "least", "shares_memory"),
    [(9, 2, True), (17, 10, True), (9, 8, False), (3, 2, False)],  # trees and rings from 9 on, of three levels at 17
    ids=["few", "many", "network", "network-few"],
)
def test_collectives_of_every_size_are_right(most: int, least: int, shares_memory: bool) -> None:
    require("torch", "jit")
    with ranks(most, shares_memory=shares_memory) as started:
        started.run("collectives_of_every_size", list(range(most, least - 1, -1)), timeout=SECONDS)
