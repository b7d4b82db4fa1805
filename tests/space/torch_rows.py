"""What the rank processes of `test_torch` run: one collective through us and through Gloo, on the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist


def matches_gloo(fields: dict[str, Any]) -> None:
    """Make the call of a row in the default group; assert that all it leaves is what Gloo leaves."""
    row = SimpleNamespace(**fields)
    gloo = dist.new_group(backend="gloo")
    dtype = getattr(torch, row.dtype)
    count = 2 if row.call == "twice at once" else 1
    ours = [begin(row, None, number, dtype) for number in range(count)]
    for work, _ in ours:
        if work is not None:
            work.wait()
    for number, (_, left) in enumerate(ours):
        work, expected = begin(row, gloo, number, torch.int64)
        if work is not None:
            work.wait()
        for got, wanted in zip(left, expected, strict=True):
            assert torch.equal(got, wanted.to(dtype)), row


def begin(row: SimpleNamespace, group: Any, number: int, dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
    """Begin a call; return its work and the tensors that it may write. Sums and products are exact in every type."""
    rank, size, count = dist.get_rank(), dist.get_world_size(), row.elements
    root = 0 if row.root == "first" else size - 1
    given = (torch.arange(size * count) * (rank + 3) // 2 + number + rank) % 2 + (row.dtype != "bool")
    parts = given.to(dtype)
    own, wide = parts[:count].clone(), torch.zeros(size * count, dtype=dtype)
    op = getattr(dist.ReduceOp, row.op)
    tensors: dict[str, list[torch.Tensor]] = {
        "all_gather": [wide], "all_to_all": [wide], "reduce_scatter": [own], "gather": [wide], "scatter": [own],
    }  # fmt: skip
    lists = list(wide.chunk(size)) if count else [wide.clone() for _ in range(size)]
    pieces = list(parts.chunk(size)) if count else [parts.clone() for _ in range(size)]
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(own, op, group=group, async_op=True),
        "reduce": lambda: dist.reduce(own, root, op, group=group, async_op=True),
        "broadcast": lambda: dist.broadcast(own, root, group=group, async_op=True),
        "all_gather": lambda: dist.all_gather_into_tensor(wide, own, group=group, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(own, parts, op, group=group, async_op=True),
        "all_to_all": lambda: dist.all_to_all_single(wide, parts, group=group, async_op=True),
        "gather": lambda: dist.gather(own, lists if rank == root else None, root, group=group, async_op=True),
        "scatter": lambda: dist.scatter(own, pieces if rank == root else None, root, group=group, async_op=True),
        "send": lambda: _sends(own, rank, size, group),
    }
    work = calls[row.collective]()
    if row.call == "waits" and work is not None:
        work.wait()
        work = None  # Gloo's sends wait for another one then
    if row.collective == "reduce" and rank != root:
        return work, []  # what is left elsewhere is nobody's business
    return work, tensors.get(row.collective, [own])


def _sends(own: torch.Tensor, rank: int, size: int, group: Any) -> Any:
    """Pass what each rank has to the next one."""
    if size == 1:
        return None
    received = torch.empty_like(own)
    sending = dist.isend(own.clone(), (rank + 1) % size, group=group)
    dist.recv(received, (rank - 1) % size, group=group)
    own.copy_(received)
    return sending
