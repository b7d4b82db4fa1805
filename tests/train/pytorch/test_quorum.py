"""A job goes on with fewer ranks after a loss, and with more when one is added, in the same processes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from openmrc.train.errors import RendezvousError, UnsupportedError
from tests.needs import require
from tests.train.pytorch.forked import exit_code, job

pytestmark = pytest.mark.needs("torch", "jit")
SETTLE = 0.2


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as threads:
        return [each.result(30) for each in [threads.submit(call) for call in calls]]


def quorums(count: int, **limits: Any) -> list[Any]:
    import torch.distributed as dist

    from openmrc.train.torch_backend import Quorum

    store = dist.HashStore()
    return [Quorum(store, settle=SETTLE, timeout=20, **limits) for _ in range(count)]


def test_the_first_quorum_is_complete_with_as_many_as_it_may_have() -> None:
    seats = at_once([each.join for each in quorums(3, most=3)])
    assert sorted(seat.rank for seat in seats) == [0, 1, 2]
    assert {(seat.number, seat.size) for seat in seats} == {(1, 3)}


def test_a_member_that_joins_while_another_one_counts_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = quorums(2, most=2)
    late: list[Future[Any]] = []
    count = first._count

    def count_and_wait(number: int, key: str) -> int:
        counted = count(number, key)
        if key == "joined" and not late:
            late.append(threads.submit(second.join))
            while count(1, "members") < 2:
                time.sleep(0.001)
        return int(counted)

    monkeypatch.setattr(first, "_count", count_and_wait)
    monkeypatch.setattr(second, "_publish", lambda number, joined: None)  # it is slower
    with ThreadPoolExecutor(1) as threads:
        assert first.join().size == 2
        assert late[0].result(30).number == 1


def test_survivors_keep_their_order_and_a_newcomer_follows_them() -> None:
    *members, newcomer = quorums(4, least=3, most=3)
    by_rank = {
        seat.rank: member for seat, member in zip(at_once([each.join for each in members]), members, strict=True)
    }
    waiting = threading.Thread(target=newcomer.join)
    waiting.start()
    seats = at_once([by_rank[2].join, by_rank[1].join])
    waiting.join(20)
    assert [(seat.number, seat.rank, seat.size) for seat in seats] == [(2, 1, 3), (2, 0, 3)]


def test_newcomers_alone_make_no_quorum() -> None:
    import torch.distributed as dist

    from openmrc.train.torch_backend import Quorum

    store = dist.HashStore()
    Quorum(store, most=1, settle=SETTLE).join()
    with pytest.raises(
        RendezvousError, match=r"quorum 2: 1 processes joined within 0\.5 s; it needs 1, and one of quorum 1"
    ):
        Quorum(store, settle=SETTLE, timeout=0.5).join()


@pytest.mark.parametrize("limits", [{"least": 0}, {"least": 3, "most": 2}, {"settle": 0.0}, {"timeout": 1.0}])
def test_impossible_limits_are_refused(limits: dict[str, Any]) -> None:
    from openmrc.train.torch_backend import Quorum

    with pytest.raises(UnsupportedError, match="expected"):
        Quorum(None, **limits)


def losses_of(sizes: Sequence[int]) -> list[dict[int, float]]:
    """Return for each step the loss of each rank, without process groups: gradients are averaged over `sizes` ranks."""
    from tests.train.pytorch.torch_trainers import batch, network, sgd

    module = network()
    optimizer = sgd(module.parameters())
    steps = []
    for step, size in enumerate(sizes):
        optimizer.zero_grad()
        losses = {}
        for rank in range(size):
            inputs, targets = batch(step, rank)
            loss = (module(inputs) - targets).square().mean()
            (loss / size).backward()
            losses[rank] = float(loss.item())
        optimizer.step()
        steps.append(losses)
    return steps


@pytest.mark.exhaustive
def test_a_job_trains_on_with_three_of_four_ranks_and_then_with_four_again(tmp_path: Path) -> None:
    import torch.distributed as dist

    from tests.train.pytorch.elastic_job import WAITING

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with job("elastic_job", str(store.port), tmp_path) as start:
        started = {name: start(name) for name in ["lost", "a", "b", "c"]}
        store.get(WAITING)
        started["new"] = start("new")
        codes = {name: exit_code(process, 200) for name, process in started.items()}
    logs = {name: (tmp_path / f"{name}.log").read_text() for name in started}
    assert codes == {"lost": -9, "a": 0, "b": 0, "c": 0, "new": 0}, logs
    results = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ["a", "b", "c", "new"]}
    expected = losses_of([4, 4, 3, 3, 4, 4])
    for name in "abc":
        assert results[name]["pid"] == started[name].pid
        assert results[name]["sizes"] == [4, 3, 4]
        assert re.search(r"rank \d is lost", logs[name])
    assert results["new"]["sizes"] == [4]
    seen = {(int(step), rank): loss for each in results.values() for step, (rank, loss) in each["losses"].items()}
    assert seen == pytest.approx({key: expected[key[0]][key[1]] for key in seen}, rel=1e-5)


@pytest.mark.exhaustive
@pytest.mark.needs("torchft")
def test_torchft_goes_on_without_a_lost_replica_and_with_a_new_one(tmp_path: Path) -> None:
    require("torchft")
    from torchft._torchft import LighthouseServer

    from tests.train.pytorch.torchft_job import LOST, NEW, REPLICAS, TOGETHER, WAITING

    lighthouse = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=REPLICAS - 1, join_timeout_ms=3000, heartbeat_timeout_ms=2000
    )
    address = f"http://127.0.0.1:{lighthouse.address().rpartition(':')[2]}"
    names = [f"replica_{number}" for number in range(REPLICAS)]
    try:
        with job("torchft_job", address, tmp_path) as start:
            started = {name: start(name) for name in names}
            deadline = time.monotonic() + 150
            while not (tmp_path / WAITING).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            started[NEW] = start(NEW)
            codes = {name: exit_code(process, 100) for name, process in started.items()}
    finally:
        lighthouse.shutdown()
    logs = {name: (tmp_path / f"{name}.log").read_text() for name in started}
    assert codes == {**dict.fromkeys(started, 0), LOST: -9}, logs
    results = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in started if name != LOST}
    seen = {(step, rank): loss for each in results.values() for step, rank, _, loss in each["log"]}
    sizes = {step: replicas for each in results.values() for step, _, replicas, _ in each["log"]}
    history = [sizes[step] for step in range(len(sizes))]
    assert re.search(rf"4+3+4{{{TOGETHER}}}$", "".join(map(str, history))), history
    expected = losses_of(history)
    assert seen == pytest.approx({key: expected[key[0]][key[1]] for key in seen}, rel=1e-4)
    for name in names[:-1]:
        assert results[name]["pid"] == started[name].pid
