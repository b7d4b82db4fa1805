"""Cases of open reports against other backends of torch, each run by every rank. docs/comparison.md has the list."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist


def strided(value: float) -> torch.Tensor:
    """Return two elements of which each has a neighbour in memory that is not its own."""
    return torch.tensor([[value, -1.0], [value, -1.0]])[:, 0]


def moves_views() -> None:
    """pytorch 192920 and 24836: broadcast, reduce and scatter of tensors that are not contiguous."""
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = torch.full((2, 2), float(rank))
    dist.broadcast(whole[:, 0], 1)
    assert whole.tolist() == [[1.0, rank], [1.0, rank]]
    given = strided(rank + 1.0)
    dist.reduce(given, 0)
    assert given.tolist() == [size * (size + 1) / 2 if rank == 0 else rank + 1] * 2
    out = torch.zeros(2)
    dist.scatter(out, [strided(10.0 + each) for each in range(size)] if rank == 0 else None, 0)
    assert out.tolist() == [10.0 + rank] * 2


def moves_flags() -> None:
    """pytorch 89197 and 90245: gather, all_gather, scatter, broadcast and reductions of bool."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, first = torch.tensor([rank == 0, True]), torch.tensor([True, True])
    outs = [torch.zeros(2, dtype=torch.bool) for _ in range(size)]
    dist.all_gather(outs, mine)
    assert [each.tolist() for each in outs] == [[each == 0, True] for each in range(size)]
    dist.gather(mine, outs if rank == 0 else None, 0)
    dist.scatter(mine, [first] * size if rank == 0 else None, 0)
    assert mine.all()
    flags = torch.tensor([rank == 0, False])
    dist.all_reduce(flags, dist.ReduceOp.BOR)
    assert flags.tolist() == [True, False]
    dist.broadcast(flags, 0)


def gathers_in_inference_mode() -> None:
    """pytorch 126032: all_gather of tensors that are made in inference mode."""
    rank, size = dist.get_rank(), dist.get_world_size()
    with torch.inference_mode():
        outs = [torch.zeros(3) for _ in range(size)]
        dist.all_gather(outs, torch.full((3,), float(rank)))
        assert [each[0].item() for each in outs] == list(range(size))


def gathers_nothing() -> None:
    """pytorch 85234: all_gather of tensors without elements."""
    outs = [torch.zeros(1, 0, 2) for _ in range(dist.get_world_size())]
    dist.all_gather(outs, torch.ones(1, 0, 2))
    assert [each.shape for each in outs] == [(1, 0, 2)] * len(outs)


def gathers_uneven() -> None:
    """pytorch 156627 and 23299: all_gather of tensors of different sizes, one of them empty."""
    rank, size = dist.get_rank(), dist.get_world_size()
    outs = [torch.zeros(each) for each in range(size)]
    dist.all_gather(outs, torch.full((rank,), float(rank)))
    assert [each.tolist() for each in outs] == [[float(each)] * each for each in range(size)]


def sends_and_leaves(rank: int, port: int) -> None:
    """pytorch 75512: a send that nobody waits for, and the end of its process before the receive."""
    timeout = timedelta(seconds=60)
    dist.init_process_group("mrc", f"tcp://127.0.0.1:{port}", timeout=timeout, rank=rank, world_size=2)
    if rank == 1:  # the other serves the store
        dist.isend(torch.arange(5.0), 0)
        return
    time.sleep(1.0)
    out = torch.zeros(5)
    dist.recv(out, 1)
    assert out.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
