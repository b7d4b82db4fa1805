"""A job for torchrun that trains until the file `over` is in the folder of its argument, and says when it has begun."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from openmrc.train.torch_backend import group_of
from tests.train.pytorch.torch_trainers import fit, network, sgd

WARM_STEPS, LAST_STEPS = 20, 20


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("mrc")
    module = DistributedDataParallel(network())
    optimizer = sgd(module.parameters())
    gradient = torch.ones(200_000)
    step, left = 0, torch.full((1,), LAST_STEPS)
    while left.item():
        group_of().step(step)
        fit(module, optimizer, [step])
        dist.all_reduce(gradient, dist.ReduceOp.AVG)
        if dist.get_rank() == 0 and (folder / "over").exists():
            left -= 1
        dist.broadcast(left, 0)
        step += 1
        if step == WARM_STEPS:
            (folder / f"begun{dist.get_rank()}").touch()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
