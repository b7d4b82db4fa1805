import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from openmrc.collectives.plan import Space
from openmrc.live.objects.server import RendezvousServer
from openmrc.train.errors import (
    AbortedError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    RankLostError,
    RendezvousError,
)
from openmrc.train.group import Group
from openmrc.train.links import mesh
from openmrc.train.links.devices import open_context
from openmrc.train.links.liveness import Liveness
from openmrc.train.links.mesh import Timers
from openmrc.train.links.reach import check_planes
from openmrc.train.links.store import TcpStore
from openmrc.train.reduction import Op
from tests.train.ranks import MemoryStore, outcomes, run


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (lambda g: g.all_reduce(np.zeros(4)), lambda g: g.all_reduce(np.zeros(5)), "of 4 float64.*of 5 float64"),
        (lambda g: g.all_reduce(np.zeros(4)), lambda g: g.barrier(), "all_reduce SUM.*barrier"),
        (lambda g: g.all_reduce(np.zeros(4)), lambda g: g.all_reduce(np.zeros(4), Op.MAX), "SUM.*MAX"),
        (lambda g: g.all_reduce(np.zeros(4)), lambda g: g.all_reduce(np.zeros(8, "f4")), "float64.*float32"),
        (lambda g: g.broadcast(np.zeros(99_999), 0), lambda g: g.broadcast(np.zeros(99_999), 1), "root 0.*root 1"),
        (lambda g: g.all_reduce(np.zeros(1 << 20)), lambda g: g.all_reduce(np.zeros(1 << 19)), "1,048,576.*524,288"),
    ],
)
def test_ranks_that_call_different_things_all_learn_who_called_what(one: Any, other: Any, says: Any) -> None:
    def program(group: Group) -> None:
        (one if group.rank != 1 else other)(group)
        group.barrier()  # a rank that nothing was missing for learns it here

    results = outcomes(3, program)
    assert [type(result) for result in results] == [CollectiveMismatchError] * 3
    import re

    for result in results:
        text = str(result)
        assert "collective 1: rank" in text
        assert re.search(says, text) or re.search(".*".join(reversed(says.split(".*"))), text), text


@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize("spoilt", ["all_reduce", "broadcast", "all_gather"])
def test_results_that_differ_are_named_where_they_are_compared(spoilt: str, size: int) -> None:
    calls: dict[str, Callable[[Group], Any]] = {
        "all_reduce": lambda group: group.all_reduce(np.ones(5)),
        "broadcast": lambda group: group.broadcast(np.ones(50_000), 1),
        "all_gather": lambda group: group.all_gather([np.zeros(3) for _ in range(size)], np.ones(3), async_op=True),
    }

    def program(group: Group) -> None:
        for each in calls.values():
            each(group)
        if group.rank == size - 1:
            begin = group._begin

            def spoil(call: Any, spaces: Any, result: Any, at_end: Any, *rest: Any, **options: Any) -> Any:
                def end() -> None:
                    if at_end is not None:
                        at_end()
                    spaces[Space.OUTPUT].whole(0)[-1] ^= 1

                return begin(call, spaces, result, end, *rest, **options)

            group._begin = spoil  # type: ignore[method-assign]
        work = calls[spoilt](group)
        work.wait()

    for result in outcomes(size, program, compares_results=True, shared_memory=True):
        assert isinstance(result, CollectiveMismatchError)
        assert f"{spoilt} " in str(result)
        assert "the results differ" in str(result)


@pytest.mark.parametrize("count", [100, 100_000])
def test_an_uneven_all_to_all_whose_splits_do_not_fit_is_named(count: int) -> None:
    def program(group: Group) -> None:
        splits = [count, count] if group.rank == 0 else [count + count // 2, count]
        group.all_to_all(np.zeros(2 * count), np.zeros(sum(splits)), in_splits=splits, out_splits=[count, count])

    for result in outcomes(2, program):
        assert isinstance(result, CollectiveMismatchError)
        assert f"rank 1 sends {count + count // 2:,} elements to rank 0, which expects {count:,}" in str(result)


def test_a_rank_that_leaves_while_it_is_waited_for_is_named_at_once() -> None:
    def program(group: Group) -> None:
        if group.rank == 0:
            group.all_reduce(np.ones(5))

    begun = time.monotonic()
    waiting, _ = outcomes(2, program)
    assert isinstance(waiting, RankLostError)
    assert "rank 1 has closed" in str(waiting)
    assert time.monotonic() - begun < 6


def test_a_receive_of_another_size_is_named_at_both_ends() -> None:
    def program(group: Group) -> None:
        if group.rank == 0:
            group.send(np.zeros(10), 1)
            group.barrier()
        else:
            group.recv(np.zeros(20), 0)

    results = outcomes(2, program)
    assert all(isinstance(result, CollectiveMismatchError) for result in results)
    assert "sends 80 bytes, rank 1 expects 160" in str(results[0])


def test_a_rank_that_does_not_call_is_named_after_the_time_out() -> None:
    released = threading.Event()

    def program(group: Group) -> None:
        group.barrier()
        group.set_timeout(2.0)
        if group.rank == 1:
            released.wait(10)
            return
        begun = time.monotonic()
        try:
            group.all_reduce(np.ones(3))
        finally:
            assert time.monotonic() - begun < 4
            released.set()

    results = outcomes(3, program)
    assert results[1] is None
    for rank in (0, 2):
        assert isinstance(results[rank], CollectiveTimeoutError)
        assert "collective 2, all_reduce SUM of 3 float64" in str(results[rank])
        assert "rank 1" in str(results[rank])


silent: list[Liveness] = []


def fall_silent(group: Group) -> None:
    """Behave as a host without power: sockets gone, nobody told, the TCP connections not closed."""
    silent.append(group._executor.endpoint.liveness)
    group._executor.endpoint.liveness = Liveness({})
    group.context.close()


def test_a_rank_whose_endpoint_vanishes_is_lost_for_all_others() -> None:
    def program(group: Group) -> None:
        group.barrier()
        if group.rank == 2:
            fall_silent(group)
            return
        group.all_reduce(np.ones(500_000))

    results = outcomes(3, program, timeout=20.0, timers=Timers(user_timeout=1.0))
    for rank in (0, 1):
        assert isinstance(results[rank], RankLostError), results[rank]
        assert "rank 2 is lost" in str(results[rank])
        assert "collective 2, all_reduce SUM of 500,000 float64" in str(results[rank])
        assert "EV" in str(results[rank]) or "plane" in str(results[rank])


def test_a_rank_that_waits_only_for_data_finds_out_too() -> None:
    def program(group: Group) -> None:
        group.barrier()
        if group.rank == 1:
            fall_silent(group)
            return
        group.recv(np.zeros(5), 1)

    results = outcomes(2, program, timeout=20.0, timers=Timers(user_timeout=1.0))
    assert isinstance(results[0], RankLostError)


def test_a_rank_whose_process_ends_is_named_within_a_second_by_all_others() -> None:
    died_at = []

    def program(group: Group) -> float:
        group.barrier()
        if group.rank == 2:
            died_at.append(time.monotonic())
            group._executor.endpoint.liveness.close()  # as the kernel does for a process that was killed
            time.sleep(1.5)
            return 0.0
        with pytest.raises(RankLostError, match=r"rank 2 is lost, during collective 2.*its process has ended"):
            group.all_reduce(np.ones(500_000))
        return time.monotonic()

    ends = run(3, program, timeout=20.0)
    assert max(ends) - died_at[0] < 1.0


def test_what_a_rank_sent_before_its_process_ended_still_counts() -> None:
    def program(group: Group) -> Any:
        array = np.full(5, group.rank + 1.0)
        if group.rank == 0:
            time.sleep(0.2)
        group.all_reduce(array)
        if group.rank == 1:
            group._executor.endpoint.liveness.close()
            time.sleep(1.0)
        else:
            time.sleep(0.5)
        return array[0]

    assert run(2, program, timeout=20.0) == [3, 3]


def test_ranks_without_control_connections_connect_and_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RendezvousServer, "start", lambda self, token: None)  # a firewall: greetings are not answered

    def program(group: Group) -> float:
        array = np.ones(5)
        group.all_reduce(array)
        return float(array[0])

    begun = time.monotonic()
    assert run_without_store(2, program) == [2, 2]
    assert time.monotonic() - begun < 6


def run_without_store(size: int, program: Any) -> list[Any]:
    """Run as `run` does, with a store in memory: `TcpStore` needs the server that the test takes away."""
    store, results = MemoryStore(), [None] * size

    def one(rank: int) -> None:
        with Group(store, rank, size, planes="1", timeout=10) as group:
            results[rank] = program(group)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def test_an_abort_ends_the_calls_of_all_ranks_and_a_new_group_can_be_made() -> None:
    store = TcpStore("127.0.0.1", 0, serve=True)

    def program(group: Group) -> Any:
        if group.rank == 0:
            time.sleep(0.3)
            group.abort("enough")
        with pytest.raises(AbortedError, match="enough"):
            group.all_reduce(np.ones(100_000))
        with pytest.raises(AbortedError, match="enough"):
            group.barrier()
        group.close()
        if group.rank == 2:
            return None
        again = TcpStore("127.0.0.1", store.port, serve=False)
        with Group(again, group.rank, 2, planes="2", timeout=10, name="again") as fewer:
            array = np.ones(100_000)
            fewer.all_reduce(array)
        again.close()
        return array[0]

    assert run(3, program) == [2, 2, None]
    store.close()


def test_an_exception_in_the_block_of_a_group_reaches_the_other_ranks() -> None:
    def program(group: Group) -> None:
        with group:
            if group.rank == 0:
                raise ValueError("out of memory, say")
            group.barrier()

    first, second = outcomes(2, program)
    assert isinstance(first, ValueError)
    assert isinstance(second, AbortedError)
    assert "out of memory, say" in str(second)


def test_a_wait_with_a_time_out_of_its_own_leaves_the_call_going() -> None:
    has_waited = threading.Event()

    def program(group: Group) -> None:
        if group.rank == 1:
            assert has_waited.wait(10)
        array = np.ones(5)
        work = group.all_reduce(array, async_op=True)
        if group.rank == 0:
            with pytest.raises(CollectiveTimeoutError, match="the call continues"):
                work.wait(0.1)
            has_waited.set()
        work.wait()
        assert (array == 2).all()

    run(2, program)


def test_ranks_that_do_not_fit_are_told_both_values() -> None:
    store = TcpStore("127.0.0.1", 0, serve=True)
    errors = {}

    def one(rank: Any, **options: Any) -> None:
        mine = TcpStore("127.0.0.1", store.port, serve=False)
        try:
            Group(mine, rank, timeout=5, **options).close()
        except RendezvousError as error:
            errors[rank] = str(error)
        mine.close()

    for name, zero, first, says, values in (
        ("planes", {"planes": "2"}, {"planes": "1"}, "number of planes: here {}, there {}", (2, 1)),
        ("size", {"size": 2}, {"size": 3}, "world size: here {}, there {}", (2, 3)),
    ):
        both = {"planes": "1", "size": 2, "name": name}
        threads = [
            threading.Thread(target=one, args=(rank,), kwargs={**both, **options})
            for rank, options in enumerate((zero, first))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        by_either = [says.format(*values), says.format(*reversed(values))]  # rank 0 may hear it of rank 1
        assert any(text in errors[0] for text in by_either)
        assert 1 in errors
    store.close()


@pytest.mark.parametrize("lost", [(0,), (0, 1)])
def test_planes_that_nothing_crosses_are_named_when_the_ranks_meet(lost: tuple[int, ...], caplog: Any) -> None:
    """As with a firewall that drops UDP: what arrives is lost, and the ranks meet over TCP."""
    faults = "; ".join(f"at: 0s, for: 60s, loss: 100%, on: plane {plane}" for plane in lost)
    begun = time.monotonic()
    with caplog.at_level("WARNING"):
        results = outcomes(2, lambda group: group.all_reduce(np.ones(3)).result()[0], faults=faults, timeout=20.0)
    texts = [str(each) for each in results] if len(lost) == 2 else [caplog.text, caplog.text]
    if len(lost) == 1:
        assert results == [2, 2]
    else:
        assert [type(each) for each in results] == [RendezvousError] * 2
        assert time.monotonic() - begun < 10  # 5 on an idle machine
    for text in texts:
        for plane in (0, 1):
            assert (f"plane {plane} (127.0.{plane + 1}." in text) == (plane in lost), text
        assert "a firewall that drops UDP is likely" in text


def test_a_rank_that_has_left_needs_no_packet_to_reach_it(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """One rank looks which planes packets cross when the other is gone: what the store says of that one is enough."""
    left = threading.Event()

    def checked_late(links: Any, *others: Any) -> None:
        assert links[0].rank == 0 or left.wait(30)
        check_planes(links, *others)

    def program(group: Group) -> int:
        if group.rank == 1:
            group.close()
            left.set()
        return group.rank

    monkeypatch.setattr(mesh, "check_planes", checked_late)
    monkeypatch.setattr("openmrc.train.execution.executor.CLOSE_SECONDS", 0.1)
    with caplog.at_level("WARNING"):
        assert outcomes(2, program, timeout=60.0) == [0, 1]
    assert "no packet reaches" not in caplog.text


def test_a_missing_rank_and_one_that_joins_twice_are_named() -> None:
    store = TcpStore("127.0.0.1", 0, serve=True)
    with pytest.raises(RendezvousError, match="rank 1 did not join in time"):
        Group(store, 0, 2, planes="1", timeout=0.5, name="alone")
    with pytest.raises(RendezvousError, match="rank 0 joined twice"):
        Group(store, 0, 2, planes="1", timeout=0.5, name="alone")
    store.close()


def test_failed_rendezvous_end_in_time_and_leave_nothing_on_a_shared_endpoint() -> None:
    store = TcpStore("127.0.0.1", 0, serve=True)
    contexts = [open_context("1", 2) for _ in range(3)]
    for attempt in range(15):
        begun = time.monotonic()
        with pytest.raises(RendezvousError, match="ranks 1, 2 did not join in time"):
            Group(store, 0, 3, timeout=0.1, name=f"attempt {attempt}", context=contexts[0])
        assert time.monotonic() - begun < 1.0
    with contexts[0], contexts[1], contexts[2]:
        names = [run(3, lambda g: g.name, name=name, contexts=contexts) for name in ("first", "second")]
    assert names == [["first"] * 3, ["second"] * 3]
    store.close()


def test_a_store_that_fails_is_a_rendezvous_error_with_its_cause() -> None:
    class Broken:
        def add(self, key: str, amount: int) -> int:
            raise OSError("the store is gone")

        set = get = check = add

    with pytest.raises(RendezvousError, match="rank 0: the store is gone"):
        Group(Broken(), 0, 2, planes="1", timeout=0.5)  # type: ignore[arg-type]


def test_closing_leaves_no_thread_behind() -> None:
    before = {thread.name for thread in threading.enumerate()}
    run(2, lambda group: group.all_reduce(np.ones(100_000), async_op=True).wait())
    deadline = time.monotonic() + 5
    while (left := {t.name for t in threading.enumerate()} - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
