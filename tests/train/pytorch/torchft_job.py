"""A replica of a job with torchft.

The replica LOST is killed in a step with all replicas. After the next step without it the others wait for NEW and train
until TOGETHER steps with it are done. How many steps they make without it depends on when its request comes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer

from openmrc.train.torchft import ProcessGroupMrc
from tests.train.pytorch.torch_trainers import batch, network, sgd

TOGETHER, LOST_FROM = 5, 3
REPLICAS = 4
LOST, NEW, WAITING = "replica_3", "replica_4", "waiting"
_TIMEOUT = timedelta(seconds=60)


def _is_over(sizes: list[int], is_new: bool) -> bool:
    """Whether the latest steps had all replicas again; `sizes`: replicas in each step of this one."""
    if sizes[-TOGETHER:] != [REPLICAS] * TOGETHER:
        return False
    return is_new or REPLICAS - 1 in sizes[sizes.index(REPLICAS) :]


def main(lighthouse: str, folder: Path, name: str) -> None:
    """Train until NEW has taken part; `lighthouse` is its address, `name` the replica's own."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    module = network()
    inner = sgd(module.parameters())

    def load(state: dict[str, Any]) -> None:
        module.load_state_dict(state["module"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupMrc(timedelta(seconds=30)),
        min_replica_size=REPLICAS - 1,
        load_state_dict=load,
        state_dict=lambda: {"module": module.state_dict(), "optimizer": inner.state_dict()},
        replica_id=name,
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        hostname="127.0.0.1",
        timeout=_TIMEOUT,
        quorum_timeout=timedelta(seconds=120),
        use_async_quorum=False,
    )
    replica = DistributedDataParallel(manager, module)
    optimizer = Optimizer(manager, inner)
    log: list[tuple[int, int, int, float]] = []  # of committed steps: step, rank, replicas, loss
    if name == NEW:
        (folder / NEW).touch()  # it beats: the lighthouse waits for it
    while not _is_over(sizes := [size for _, _, size, _ in log], name == NEW):
        if REPLICAS in sizes and sizes[-1] < REPLICAS:  # one was lost
            (folder / WAITING).touch()
            while not (folder / NEW).exists():
                time.sleep(0.02)
        optimizer.zero_grad()  # also waits for the quorum, and takes over the state of another replica
        step, rank, replicas = manager.current_step(), manager.participating_rank() or 0, manager.num_participants()
        inputs, targets = batch(step, rank)
        loss = (replica(inputs) - targets).square().mean()
        if name == LOST and step >= LOST_FROM and replicas == REPLICAS in sizes:  # all have done a step together
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        if manager.current_step() > step:
            log.append((step, rank, replicas, loss.item()))
    (folder / f"{name}.json").write_text(json.dumps({"pid": os.getpid(), "log": log}))
    manager.shutdown()
