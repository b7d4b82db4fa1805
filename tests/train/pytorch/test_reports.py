"""Open reports against other backends of torch: their cases, over the network and through shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.free_port import free_port
from tests.needs import require
from tests.train.pytorch.torch_ranks import Ranks, ranks

pytestmark = pytest.mark.needs("torch", "jit")


@pytest.fixture(scope="module", params=[False, True], ids=["network", "shared-memory"])
def two(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    require("torch", "jit")
    with ranks(2, shares_memory=request.param) as started:
        yield started


@pytest.mark.parametrize(
    "case", ["moves_views", "moves_flags", "gathers_in_inference_mode", "gathers_nothing", "gathers_uneven"]
)
def test_a_case_that_was_reported_elsewhere_works_here(two: Ranks, case: str) -> None:
    two.run(case)


def test_what_a_process_sent_before_it_ended_arrives() -> None:
    require("torch", "jit")
    import torch.multiprocessing

    from tests.train.pytorch.torch_reports import sends_and_leaves

    torch.multiprocessing.spawn(sends_and_leaves, (free_port(),), nprocs=2)
