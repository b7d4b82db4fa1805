"""Every collective, operation and size around each threshold, against NumPy; run by `Ranks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from openmrc.collectives.choice import LARGE, MANY, SMALL
from openmrc.train.execution.run import EAGER
from openmrc.train.links.frames import INLINE
from openmrc.train.reduction import Op
from openmrc.train.torch_backend import group_of

Array = np.ndarray[Any, Any]
OPS = list(Op)
FLOATING = (Op.SUM, Op.AVG)  # tried with floats too
FEW = 3  # ranks among which all calls are cheap
REFERENCE: dict[Op, Callable[[Array], Array]] = {
    Op.SUM: lambda each: each.sum(0, dtype=each.dtype),
    Op.AVG: lambda each: np.trunc(each.sum(0) / len(each)).astype(each.dtype),
    Op.PRODUCT: lambda each: each.prod(0, dtype=each.dtype),
    Op.MIN: lambda each: each.min(0),
    Op.MAX: lambda each: each.max(0),
    Op.BAND: np.bitwise_and.reduce,
    Op.BOR: np.bitwise_or.reduce,
    Op.BXOR: np.bitwise_xor.reduce,
}


class Torch:
    """Calls through torch."""

    def __init__(self, ranks: list[int], pg: Any) -> None:
        self._ranks, self._pg = ranks, pg

    def reduce_all(self, array: Array, op: Op) -> None:
        dist.all_reduce(_tensor(array), _torch_op(op), group=self._pg)

    def reduce(self, array: Array, root: int, op: Op) -> None:
        dist.reduce(_tensor(array), self._ranks[root], _torch_op(op), group=self._pg)

    def reduce_scatter(self, out: Array, array: Array, op: Op) -> None:
        dist.reduce_scatter_tensor(_tensor(out), _tensor(array), _torch_op(op), group=self._pg)

    def broadcast(self, array: Array, root: int) -> None:
        dist.broadcast(_tensor(array), self._ranks[root], group=self._pg)

    def all_gather(self, out: Array, array: Array) -> None:
        dist.all_gather_into_tensor(_tensor(out), _tensor(array), group=self._pg)

    def all_to_all(self, out: Array, array: Array) -> None:
        dist.all_to_all_single(_tensor(out), _tensor(array), group=self._pg)

    def gather(self, out: Array | None, array: Array, root: int) -> None:
        parts = None if out is None else list(_tensor(out).chunk(len(self._ranks)))
        dist.gather(_tensor(array), parts, self._ranks[root], group=self._pg)

    def scatter(self, out: Array, array: Array | None, root: int) -> None:
        parts = None if array is None else list(_tensor(array).chunk(len(self._ranks)))
        dist.scatter(_tensor(out), parts, self._ranks[root], group=self._pg)

    def barrier(self) -> None:
        dist.barrier(group=self._pg)


class Arrays:
    """Calls of the group itself."""

    def __init__(self, pg: Any) -> None:
        self._group = group_of(pg)
        self.reduce_all, self.broadcast = self._group.all_reduce, self._group.broadcast
        self.reduce, self.reduce_scatter = self._group.reduce, self._group.reduce_scatter
        self.all_gather, self.all_to_all = self._group.all_gather, self._group.all_to_all
        self.scatter, self.barrier = self._group.scatter, self._group.barrier

    def gather(self, out: Array | None, array: Array, root: int) -> None:
        self._group.gather(array, out, root)


def _tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(array)


def _torch_op(op: Op) -> Any:
    return getattr(dist.ReduceOp, op.name)


class Calls:
    """The calls of one rank of a group, which know what each of them must give.

    Values repeat after PERIOD elements, so that a result of any size is known from that many.
    """

    PERIOD = 5

    def __init__(self, way: Torch | Arrays, rank: int, size: int) -> None:
        self.way, self.rank, self.size = way, rank, size
        self._every = [
            [(index * (each + 3) + each) % self.PERIOD + 1 for index in range(self.PERIOD)] for each in range(size)
        ]

    def every(self, count: int, added: int = 0) -> Array:
        """Return what each rank has, one after the other."""
        return (np.array(self._every, np.int32) + np.int32(added))[:, np.arange(count) % self.PERIOD].reshape(-1)

    def one(self, rank: int, count: int, dtype: Any = np.int32, added: int = 0) -> Array:
        """Return what one rank has."""
        return np.resize(np.array(self._every[rank], dtype) + dtype(added), count)

    def own(self, count: int, dtype: Any = np.int32) -> Array:
        """Return what this rank has."""
        return self.one(self.rank, count, dtype)

    def reduced(self, op: Op, count: int, dtype: Any, added: int = 0) -> Array:
        every = np.array(self._every, dtype) + dtype(added)
        if op == Op.AVG and np.issubdtype(dtype, np.floating):
            return np.resize(every.sum(0) / dtype(self.size), count)
        return np.resize(REFERENCE[op](every), count)

    def parts(self, count: int, dtype: Any) -> Array:
        """Return what this rank has for each rank."""
        values = np.array(self._every[self.rank], dtype)
        parts = values + np.arange(self.size, dtype=dtype)[:, None]
        return parts[:, np.arange(count) % self.PERIOD].reshape(-1)

    def check_reductions(self, op: Op, count: int, root: int, dtype: Any) -> None:
        """All-reduce and reduce `count` elements; reduce-scatter parts that add up to about as many."""
        array = self.own(count, dtype)
        self.way.reduce_all(array, op)
        self.expect(f"all_reduce {op.name} of {count}", array, self.reduced(op, count, dtype))
        array = self.own(count, dtype)
        self.way.reduce(array, root, op)
        is_root = self.rank == root
        expected = self.reduced(op, count, dtype) if is_root else self.own(count, dtype)
        self.expect(f"reduce {op.name} of {count} to {root}", array, expected)
        count = -(-count // self.size)
        out = np.zeros(count, dtype)
        self.way.reduce_scatter(out, self.parts(count, dtype), op)
        self.expect(f"reduce_scatter {op.name} of {count}", out, self.reduced(op, count, dtype, self.rank))

    def check_broadcast(self, count: int, root: int) -> None:
        array = self.own(count)
        self.way.broadcast(array, root)
        self.expect(f"broadcast of {count} from {root}", array, self.one(root, count))

    def check_all_gather(self, count: int) -> None:
        out = np.zeros(count * self.size, np.int32)
        self.way.all_gather(out, self.own(count))
        self.expect(f"all_gather of {count}", out, self.every(count))

    def check_all_to_all(self, count: int) -> None:
        out = np.zeros(count * self.size, np.int32)
        self.way.all_to_all(out, self.parts(count, np.int32))
        self.expect(f"all_to_all of {count}", out, self.every(count, self.rank))

    def check_gather_and_scatter(self, count: int, root: int) -> None:
        out = np.zeros(count * self.size, np.int32) if self.rank == root else None
        self.way.gather(out, self.own(count), root)
        if out is not None:
            self.expect(f"gather of {count} to {root}", out, self.every(count))
        part = np.zeros(count, np.int32)
        self.way.scatter(part, self.parts(count, np.int32) if out is not None else None, root)
        expected = self.one(root, count, added=self.rank)
        self.expect(f"scatter of {count} from {root}", part, expected)

    def expect(self, call: str, got: Array, expected: Array) -> None:
        if not np.array_equal(got, expected):
            wrong = np.flatnonzero(got != expected)
            raise AssertionError(
                f"{call} of {self.size} ranks at rank {self.rank}: {len(wrong)} wrong elements, "
                f"the first at {wrong[0]}: {got[wrong[0]]}, expected {expected[wrong[0]]}"
            )


def counts(*thresholds: int) -> list[int]:
    """Return one element, and for each threshold (bytes) what fits and what does not, in elements of 4 bytes."""
    return [1, *(each // 4 + more for each in thresholds for more in (0, 1))]


def check_all(torch_calls: Calls, array_calls: Calls) -> None:
    """Make every call of every size, in turns through torch and in arrays."""
    size = torch_calls.size
    both, every = ((torch_calls, array_calls), 1) if size <= FEW else ((), 3)
    for number, count in enumerate(counts(SMALL, INLINE)):
        root = number * 7 % size
        for calls in both or ((torch_calls, array_calls)[(number + size) % 2],):
            # Among many, each size has a third of the operations, and another third at the next number of ranks.
            for op in OPS[(number + size) % every :: every]:
                calls.check_reductions(op, count, root, np.int32 if number % 4 or op not in FLOATING else np.float32)
            calls.check_broadcast(count, root)
            calls.check_all_gather(count)
            calls.check_gather_and_scatter(count, root)
    array_calls.way.barrier()
    for number, count in enumerate(counts(INLINE)):
        (torch_calls, array_calls)[number % 2].check_all_to_all(count)
    for number, count in enumerate(counts(EAGER, LARGE)[2 - (size <= MANY) :]):
        array_calls.check_reductions(OPS[(number + size) % len(OPS)], count, number * 5 % size, np.int32)
        array_calls.check_broadcast(count, number * 5 % size)
        if count <= EAGER // 4 + 1 and size <= FEW:
            array_calls.check_all_gather(count)
            array_calls.check_all_to_all(count)
            array_calls.check_gather_and_scatter(count, number * 5 % size)


def collectives_of_every_size(sizes: list[int]) -> None:
    """Make every call in groups of the last ranks, of falling sizes; the first may be all."""
    rank, most = dist.get_rank(), dist.get_world_size()
    for size in sizes:
        ranks = list(range(most - size, most))
        group = dist.group.WORLD if size == most else dist.new_group(ranks)
        if rank in ranks:
            own = rank - ranks[0]
            check_all(Calls(Torch(ranks, group), own, size), Calls(Arrays(group), own, size))
            if size < most:
                dist.destroy_process_group(group)
    dist.barrier()  # the first rank serves the store
