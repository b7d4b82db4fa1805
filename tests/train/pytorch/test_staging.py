"""Tensors on a device, with a device whose streams run nothing before something makes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from openmrc.train.errors import CollectiveError, UnsupportedError
from openmrc.train.group import Group
from tests.needs import require
from tests.train.pytorch.torch_ranks import ranks
from tests.train.ranks import run

pytestmark = pytest.mark.needs("torch")
require("torch")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from openmrc.train.pytorch.collectives import Collectives  # noqa: E402
from openmrc.train.pytorch.staging import PIECE, Staging, StreamCopies, device_of, pieces_of  # noqa: E402


class LazyStream:
    """A queue of work that runs only up to an event that something waits for."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tasks: list[Callable[[], Any]] = []
        self._done = 0

    def add(self, task: Callable[[], Any]) -> LazyEvent:
        with self._lock:
            self._tasks.append(task)
            return LazyEvent(self, len(self._tasks))

    def run_to(self, end: int) -> None:
        with self._lock:
            while self._done < end:
                self._done += 1
                self._tasks[self._done - 1]()

    def run_all(self) -> None:
        self.run_to(len(self._tasks))


class LazyEvent:
    def __init__(self, stream: LazyStream, end: int) -> None:
        self._stream, self._end = stream, end

    def synchronize(self) -> None:
        self._stream.run_to(self._end)


class LazyCopies(StreamCopies):
    """A device: one stream for the program, one for each direction."""

    def __init__(self) -> None:
        self.program, self._in, self._out = LazyStream(), LazyStream(), LazyStream()

    def host_like(self, tensor: Any) -> Any:
        return torch.full(tensor.shape, 77, dtype=tensor.dtype)

    def begin(self) -> None:
        event = self.program.add(lambda: None)
        self._in.add(event.synchronize)
        self._out.add(event.synchronize)

    def fetch(self, host: Any, tensor: Any) -> Any:
        return self._in.add(lambda: host.copy_(tensor))

    def store(self, tensor: Any, host: Any) -> Any:
        return self._out.add(lambda: tensor.copy_(host))

    def join(self, event: Any) -> None:
        self.program.add(event.synchronize)


class Device:
    """The device of one rank, whose tensors are all tensors that it made, and collectives over them."""

    def __init__(self, group: Group) -> None:
        self.rank, self.size = group.rank, group.size
        self._copies = LazyCopies()
        self._group = group
        self.collectives = Collectives(group, Staging(group, lambda _: self._copies, lambda tensor: True))
        self.collectives.on_host.staging = Staging(group, lambda _: self._copies, lambda tensor: False)

    def tensor(self, count: int, value: float) -> Any:
        """Return a tensor that a kernel is going to fill."""
        made = torch.full((count,), -1.0)
        self._copies.program.add(lambda: made.fill_(value))
        return made

    def read(self, *tensors: Any) -> list[Any]:
        """Return what the program reads after all that it has done so far."""
        self._copies.program.run_all()
        return [tensor.unique().tolist() for tensor in tensors]


LARGE = 3 * PIECE // 4 + 5  # elements: four pieces


def on_devices(program: Callable[[Device], Any], **options: Any) -> list[Any]:
    def one(group: Group) -> Any:
        device = Device(group)
        try:
            return program(device)
        finally:
            device.collectives.on_host.futures.close()
            device.collectives.futures.close()

    return run(2, one, **{"shared_memory": True, **options})


@pytest.mark.parametrize("count", [3, 5_000, LARGE])
def test_a_sum_follows_the_kernels_before_it_and_precedes_those_behind_it(count: int) -> None:
    def program(device: Device) -> Any:
        tensor = device.tensor(count, device.rank + 1.0)
        device.collectives.allreduce([tensor]).wait()
        return device.read(tensor)

    assert on_devices(program) == [[[3.0]], [[3.0]]]


def test_results_are_stored_only_behind_wait() -> None:
    def program(device: Device) -> Any:
        tensors = [device.tensor(1_000, 10.0 * n + device.rank) for n in range(5)]
        works = [device.collectives.allreduce([tensor]) for tensor in tensors]
        before = [tensor.unique().tolist() for tensor in tensors]
        for work in reversed(works):
            work.wait()
        return before + device.read(*tensors)

    for rank, result in enumerate(on_devices(program)):
        assert all(result[n] in ([-1.0], [10.0 * n + rank]) for n in range(5))
        assert result[5:] == [[20.0 * n + 1] for n in range(5)]


def test_host_and_device_calls_keep_their_order() -> None:
    def program(device: Device) -> Any:
        on_device, on_host = device.tensor(LARGE, 1.0), torch.full((5,), 2.0)
        first = device.collectives.allreduce([on_device])
        device.collectives.on_host.allreduce([on_host]).wait()
        first.wait()
        return [*device.read(on_device), on_host.unique().tolist()]

    assert on_devices(program) == [[[2.0], [4.0]]] * 2


def test_every_collective_takes_tensors_of_a_device() -> None:
    def program(device: Device) -> Any:
        calls, rank = device.collectives, device.rank
        mine = device.tensor(6, rank + 1.0)
        out = device.tensor(12, -5.0)
        halves = [device.tensor(6, -5.0) for _ in range(2)]
        part = device.tensor(3, -5.0)
        root = dist.BroadcastOptions()
        root.rootRank = 1
        works = [
            calls.all_gather_single(out, mine),
            calls.allgather([halves], [mine]),
            calls.reduce_scatter_single(part, mine),
        ]
        for work in works:
            work.wait()
        gathered = device.read(out, *halves, part)
        calls.all_to_all_single(out[:6], mine).wait()
        calls.broadcast([mine], root).wait()
        sent = calls.send([part], 1 - rank, 3)
        calls.recv([halves[0][:3]], 1 - rank, 3).wait()
        sent.wait()
        return gathered + device.read(out[:6], mine, halves[0][:3])

    expected = [[1.0, 2.0], [1.0], [2.0], [3.0], [1.0, 2.0], [2.0], [3.0]]
    assert on_devices(program) == [expected, expected]


def test_a_future_completes_with_the_results() -> None:
    def program(device: Device) -> Any:
        tensor = device.tensor(50, device.rank + 1.0)
        future = device.collectives.allreduce([tensor]).get_future()
        future.wait()
        return device.read(tensor)

    assert on_devices(program) == [[[3.0]], [[3.0]]]


def test_a_failed_call_raises_in_wait_and_stores_nothing() -> None:
    def program(device: Device) -> Any:
        tensor = device.tensor(5 + device.rank, 4.0)
        work = device.collectives.allreduce([tensor])
        with pytest.raises(CollectiveError, match="called all_reduce"):
            work.wait()
        return device.read(tensor)

    assert on_devices(program) == [[[4.0]], [[4.0]]]


def test_a_factor_is_refused_once_at_every_rank() -> None:
    def program(device: Device) -> Any:
        tensor = device.tensor(5, 2.0)
        options = dist.AllreduceOptions()
        options.reduceOp = dist._make_nccl_premul_sum(2.0)
        with pytest.raises(UnsupportedError, match="PREMUL_SUM"):
            device.collectives.allreduce([tensor], options)
        device.collectives.allreduce([tensor]).wait()
        return device.read(tensor)

    assert on_devices(program) == [[[4.0]], [[4.0]]]


def test_large_contiguous_tensors_are_cut() -> None:
    assert [len(each) for (each,) in pieces_of([torch.ones(LARGE)])] == [PIECE // 4] * 3 + [5]
    assert len(pieces_of([torch.ones(9)])) == 1
    assert len(pieces_of([torch.ones(LARGE, 2).t()])) == 1


def test_tensors_of_one_call_are_on_one_device() -> None:
    with pytest.raises(UnsupportedError, match="cpu, meta"):
        device_of([torch.ones(1), [torch.ones(1, device="meta")]])


@pytest.mark.needs("gpu", "jit")
def test_sums_are_right_on_the_device_of_this_machine() -> None:
    with ranks(2, shares_memory=True) as started:
        started.run("reduces_on_a_device")
