"""A process of a job that goes on with fewer and more ranks.

The process called `lost` is killed in step LOST_AT, before its backward pass. Before step JOINED_AT the others wait for
a new one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from openmrc.train.torch_backend import Quorum
from tests.train.pytorch.torch_trainers import batch, network, sgd

RANKS, STEPS, LOST_AT, JOINED_AT = 4, 6, 2, 4
LOST = "lost"
WAITING = "waiting"  # key of the store


def share(module: Any, optimizer: Any, step: int) -> int:
    """Take over rank 0's state; return its step."""
    state = [module.state_dict(), optimizer.state_dict(), step]
    dist.broadcast_object_list(state, 0)
    module.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    return int(state[2])


def fit(module: Any, optimizer: Any, step: int, before_backward: Callable[[], None]) -> float:
    inputs, targets = batch(step, dist.get_rank())
    optimizer.zero_grad()
    loss = (module(inputs) - targets).square().mean()
    before_backward()
    loss.backward()
    optimizer.step()
    return float(loss.item())


def main(port: str, folder: Path, name: str) -> None:
    """Train until STEPS; `port` is that of the store, `name` the process's own."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", int(port), is_master=False)
    quorum = Quorum(store, least=RANKS - 1, most=RANKS, timeout=120)
    module = network()
    optimizer = sgd(module.parameters())
    step, log, sizes = 0, dict[int, tuple[int, float]](), list[int]()

    def die() -> None:
        if name == LOST and step == LOST_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    while step < STEPS:
        seat = quorum.join()
        sizes.append(seat.size)
        dist.init_process_group("mrc", store=seat.store, rank=seat.rank, world_size=seat.size)
        try:
            step = share(module, optimizer, step)
            replica = DistributedDataParallel(module)
            while step < STEPS:
                has_newcomers = quorum.has_newcomers()
                if step == JOINED_AT and seat.size < RANKS:
                    if has_newcomers:
                        break
                    store.set(WAITING, "")
                    continue
                log[step] = seat.rank, fit(replica, optimizer, step, die)
                step += 1
        except RuntimeError as error:  # a rank was lost; the others train on
            sys.stderr.write(f"{name}: {error}\n")
        dist.destroy_process_group()
    result = {"pid": os.getpid(), "losses": log, "sizes": sizes}
    (folder / f"{name}.json").write_text(json.dumps(result))
