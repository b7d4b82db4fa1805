"""Backend of `mrc collperf` that runs Gloo through torch, for comparison with TCP."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import ConfigError
from openmrc.programs.training.measurement import OPS, CollperfSettings
from openmrc.train.reduction import Op

Array = NDArray[Any]


class GlooBackend:
    """Backend `gloo`: the collectives of a Gloo process group."""

    def __init__(self, rank: int, size: int, address: str) -> None:
        """Connect at "host:port"; ConfigError if torch is not installed."""
        try:
            import torch
            import torch.distributed as dist
        except ImportError as error:
            raise ConfigError("--backend gloo needs torch: pip install torch") from error
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
        """Wait for all ranks."""
        self._dist.barrier()

    def combine(self, value: float, op: Op) -> float:
        """Return the values of all ranks combined."""
        tensor = self._torch.tensor([value], dtype=self._torch.float64)
        self._dist.all_reduce(tensor, self._op(op))
        return float(tensor[0])

    def close(self) -> None:
        """Leave the process group."""
        self._dist.destroy_process_group()

    def _tensor(self, array: Array, settings: CollperfSettings) -> Any:
        if settings.dtype == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _op(self, op: Op) -> Any:
        return getattr(self._dist.ReduceOp, op.name)
