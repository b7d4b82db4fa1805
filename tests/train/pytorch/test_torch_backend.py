"""The backend `mrc` of torch: every collective, trainers on top of it, bad use, and what is left behind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.needs import require
from tests.train.pytorch.torch_ranks import Failed, Ranks, ranks

pytestmark = pytest.mark.needs("torch", "jit")


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    require("torch", "jit")
    with ranks(4) as started:
        yield started


@pytest.mark.parametrize(
    "program",
    [
        "reduces_all_types",
        "adds_sparse_tensors",
        "moves_tensors",
        "moves_uneven_parts",
        "reduces_views",
        "serves_many_threads",
        "gathers_and_scatters",
        "sends_and_receives",
        "passes_objects",
        "coalesces",
        "completes_futures",
        "uses_many_groups",
        "goes_on_after_wrong_calls",
        "premultiplies",
        "takes_timers",
        "compares_results",
        "shows_in_a_profile",
        "shares_a_process_group_or_refuses_to",
    ],
)
@pytest.mark.parametrize("size", [2, 3])
def test_what_torch_offers_works(four: Ranks, program: str, size: int) -> None:
    four.run(program, size=size)


def test_no_operation_leaves_a_mark_on_a_tensor(four: Ranks) -> None:
    assert four.run("leaves_no_mark", size=2) == [[], []]


def test_a_device_mesh_and_distributed_tensors_work(four: Ranks) -> None:
    four.run("uses_a_mesh")


def test_processes_leave_a_group_and_come_back(four: Ranks) -> None:
    from torch.torch_version import TorchVersion, __version__

    options = {"enable_reconfigure": True} if TorchVersion(__version__) >= "2.14" else {}
    four.run("changes_its_ranks", size=3, **options)


def schedule(seed: int) -> str:
    rng = random.Random(seed)
    steps = [
        f"{{at: {50 * each}ms, for: 40ms, down: plane {each % 2}}}"
        if each % 3 == 0
        else f"{{at: {50 * each}ms, for: 40ms, loss: {rng.randint(1, 20)}%, on: plane {each % 2}}}"
        for each in range(20)
    ]
    return "[" + ", ".join(steps) + "]"


def test_two_jobs_at_once_share_one_nic(four: Ranks) -> None:
    """All four processes have the same addresses; each job of two finds its own ranks and moves its own numbers."""
    first, same, second, again = four.run("sums_among_its_own", jobs=2, planes="127.58.1.1,127.58.2.1")
    assert first == same
    assert second == again
    assert len({*first, *second}) == 4


def test_ddp_has_the_same_loss_curve_with_and_without_faults(four: Ranks) -> None:
    undisturbed = four.run("trains_ddp", 60, size=3)
    disturbed = four.run("trains_ddp", 60, schedule(1), size=3)
    assert disturbed == undisturbed
    assert undisturbed[0][-1] < undisturbed[0][0]


def test_fsdp_trains_as_one_process_does(four: Ranks) -> None:
    sharded = four.run("trains_fsdp", 8, size=2)
    alone = four.run("trains_alone", 8, size=1)[0]
    assert sharded[0] == sharded[1] == pytest.approx(alone, rel=1e-4)


def test_a_monitored_barrier_names_the_rank_that_is_late(four: Ranks) -> None:
    assert four.run("monitors_a_barrier", -1, size=3) == ["", "", ""]
    texts = four.run("monitors_a_barrier", 2, size=3)
    assert all("Rank 2 failed to pass monitoredBarrier within 1 s" in each for each in texts[:2])


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("device", "the tensor is on meta"),
        ("type", "float8_e4m3fn cannot be reduced"),
        ("layout", "supports only dense tensors"),
        ("operation", "BAND is for integers"),
        ("size", "expected 3 x 3"),
        ("mixed", "the tensor is on meta"),
    ],
)
def test_a_wrong_call_at_one_rank_is_an_error_at_all(four: Ranks, case: str, says: str) -> None:
    texts = four.run("calls_wrongly", case, [1], size=3)
    assert all(says in each for each in texts), texts


def test_an_aborted_group_is_made_again_with_fewer_ranks(four: Ranks) -> None:
    assert four.run("rebuilds", 2, size=3) == [[2, 2, 2], [2, 2, 2], []]


def test_groups_are_made_again_and_again_over_one_store(four: Ranks, tmp_path: Any) -> None:
    four.run("meets_twice_over_one_store", str(tmp_path), size=2)


def test_destroying_the_process_group_leaves_no_thread_and_no_socket(four: Ranks) -> None:
    for had, left, names in four.run("leaves_nothing", size=2):
        assert had[0] > 0
        assert left == (0, 0)
        assert names == []


def test_ranks_that_do_not_fit_all_get_an_error(four: Ranks) -> None:
    for planes, says in ((["2", "2", "1"], "number of planes"), (["2", "2", "203.0.113.9"], "203.0.113.9")):
        texts = four.outcomes("reduces_all_types", size=3, planes=planes)
        assert all(isinstance(each, Failed) and says in str(each) for each in texts), texts


def test_two_processes_that_claim_one_rank_all_get_an_error(four: Ranks) -> None:
    texts = four.outcomes("reduces_all_types", size=3, rank=[0, 1, 1], world_size=3, timeout=8.0)
    assert all(isinstance(each, Failed) and "rank 1 joined twice" in str(each) for each in texts), texts
