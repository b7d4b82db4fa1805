"""Compare collectives with Gloo's over TCP on the loopback, measured alternately in the same processes.

Marks: all_reduce, all_gather, reduce_scatter and alltoall of 64 MiB take at most as long as Gloo's, an all_reduce of 8
bytes at most 1.5 times as long.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.train.ranks import run
from openmrc.programs.training.measurement import OPS, Array, CollperfSettings, MrcCollectives, seconds_in_place
from openmrc.train.group import Group
from openmrc.train.reduction import Op

LARGE, SMALL = 64 << 20, 8
CASES = (
    ("all_reduce", SMALL, 1.5),
    ("all_reduce", LARGE, 1.0),
    ("all_gather", LARGE, 1.0),
    ("reduce_scatter", LARGE, 1.0),
    ("alltoall", LARGE, 1.0),
)


class GlooBackend:
    """The collectives of a Gloo process group."""

    def __init__(self, rank: int, size: int, address: str) -> None:
        """Connect at "host:port"."""
        import torch
        import torch.distributed as dist

        warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
        torch.set_num_threads(1)
        self.rank, self.size = rank, size
        self._torch, self._dist = torch, dist
        dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=size)

    def call(
        self, name: str, given: Array, out: Array, settings: CollperfSettings, asynchronous: bool
    ) -> Callable[[], None]:
        """Start a collective; the copy for those without an out-of-place form is included in the time."""
        dist, root = self._dist, settings.root
        source, target = self._tensor(given, settings), self._tensor(out, settings)
        op = self._op(OPS[settings.op])
        if name in ("all_reduce", "broadcast", "reduce"):
            if out is not given:
                target.copy_(source)
            if name == "all_reduce":
                work = dist.all_reduce(target, op, async_op=True)
            elif name == "broadcast":
                work = dist.broadcast(target, root, async_op=True)
            else:
                work = dist.reduce(target, root, op, async_op=True)
        elif name == "all_gather":
            work = dist.all_gather_into_tensor(target, source, async_op=True)
        elif name == "reduce_scatter":
            work = dist.reduce_scatter_tensor(target, source, op, async_op=True)
        elif name == "alltoall":
            work = dist.all_to_all_single(target, source, async_op=True)
        else:
            receiving = dist.irecv(target, (self.rank - 1) % self.size)
            sending = dist.isend(source, (self.rank + 1) % self.size)

            def wait_for_both() -> None:
                receiving.wait()
                sending.wait()

            return wait_for_both
        if not asynchronous:
            work.wait()
        return lambda: None if work.is_completed() else work.wait()

    def barrier(self) -> None:
        self._dist.barrier()

    def combine(self, value: float, op: Op) -> float:
        tensor = self._torch.tensor([value], dtype=self._torch.float64)
        self._dist.all_reduce(tensor, self._op(op))
        return float(tensor[0])

    def close(self) -> None:
        self._dist.destroy_process_group()

    def _tensor(self, array: Array, settings: CollperfSettings) -> Any:
        if settings.dtype == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _op(self, op: Op) -> Any:
        return getattr(self._dist.ReduceOp, op.name)


def compare(rank: int, size: int, address: str, rounds: int) -> None:
    """Measure both backends alternately for every case; rank 0 prints a line per case."""
    host, port = address.split(":")
    with Group.rendezvous(rank, size, address, planes="4", timeout=60) as group:
        gloo = GlooBackend(rank, size, f"{host}:{int(port) + 1}")
        backends: list[Any] = [MrcCollectives(group), gloo]
        for name, amount, mark in CASES:
            settings = CollperfSettings(collective=name, iterations=200 if amount == SMALL else 2, check=False)
            pairs = [[seconds_in_place(backend, settings, amount) for backend in backends] for _ in range(rounds)]
            ours, theirs = (statistics.median(each) * 1e6 for each in zip(*pairs, strict=True))
            if rank == 0:
                ratio = ours / theirs
                print(
                    f"{size} ranks, {name} of {amount:,} bytes: {ours:,.0f} us, Gloo {theirs:,.0f} us, "
                    f"{ratio:.2f} x, mark {mark} x: {'ok' if ratio <= mark else 'missed'}",
                    flush=True,
                )
        gloo.close()


def main() -> None:
    """Print a line per case: both medians, the ratio and the mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for ranks in options.ranks:
        run(ranks, compare, options.rounds)


if __name__ == "__main__":
    main()
