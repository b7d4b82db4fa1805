"""What people train with, on `mrc` and on Gloo: the losses are equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import require
from tests.train.pytorch.torch_ranks import Ranks, ranks

pytestmark = pytest.mark.needs("torch", "jit")


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    require("torch", "jit")
    with ranks(2, shares_memory=True) as started:
        yield started


@pytest.mark.parametrize(
    "trainer",
    [
        "fits_fsdp1",
        "fits_fsdp2",
        "fits_zero",
        "fits_compiled_ddp",
        "fits_with_fp16_hook",
        "fits_with_bfloat16_hook",
        "fits_with_powersgd",
        "fits_with_accumulated_gradients",
        "fits_with_uneven_inputs",
        "fits_experts",
        "fits_tensor_parallel",
        "fits_pipeline",
    ],
)
def test_a_trainer_has_the_losses_that_it_has_on_gloo(two: Ranks, trainer: str) -> None:
    ours = two.run(trainer)
    assert ours == two.run(trainer, backend="gloo")
    assert any(losses[-1] < losses[0] for losses in ours)


@pytest.mark.parametrize(
    "program", ["reduces_all_types", "moves_tensors", "moves_uneven_parts", "sends_and_receives", "uses_many_groups"]
)
def test_what_torch_offers_works_through_shared_memory(two: Ranks, program: str) -> None:
    two.run(program)


def test_destroying_the_process_group_gives_shared_memory_back_without_a_garbage_collection(two: Ranks) -> None:
    for had, left, names in two.run("leaves_nothing"):
        assert had[1] > 0
        assert left == (0, 0)
        assert names == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_distributed_checkpoint_is_saved_and_loaded(two: Ranks, tmp_path: Path, is_async: bool) -> None:
    ours = two.run("resumes_from_a_checkpoint", str(tmp_path), is_async)
    assert ours == two.run("resumes_from_a_checkpoint", str(tmp_path), is_async, backend="gloo")
