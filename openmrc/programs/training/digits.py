"""The training of `mrc demo --train`: DDP on handwritten digits, once without and once with faults."""

import time
from datetime import timedelta

import msgspec

TITLE = "DDP on handwritten digits"
BATCH = 32  # images of a rank in each step
STEPS = 200
_TIMEOUT = timedelta(seconds=60)


class Training(msgspec.Struct):
    """The measurements of one rank."""

    at: list[float]  # s from the start of the first step to the end of each step
    loss: list[float]
    seconds: list[float]  # duration of each step
    retransmitted: int  # packets that this rank retransmitted
    right: float  # share of all images classified correctly at the end


class Outcome(msgspec.Struct):
    """The same training without and with faults."""

    undisturbed: Training
    disturbed: Training
    faults: str


def schedule(seconds: float, planes: int) -> str:
    """Return a fault schedule for a training of `seconds`: outages of planes, partly overlapping, and packet loss."""
    a, b, c, d = (plane % planes for plane in (1, 2, 0, 3))
    parts = [
        (0.10, 0.12, f"down: plane {a}"),
        (0.32, 0.12, f"loss: 5%, on: plane {b}"),
        (0.55, 0.15, f"down: plane {c}"),
        (0.62, 0.15, f"down: plane {d}" if d != c else "loss: 2%"),
        (0.85, 0.05, f"down: plane {b}"),
    ]
    return "; ".join(f"at: {at * seconds:.3f}s, for: {lasts * seconds:.3f}s, {what}" for at, lasts, what in parts)


def run(rank: int, size: int, address: str, planes: int, steps: int, faults: str | None) -> Outcome:
    """Train twice as one of `size` ranks that connect at "host:port"; `faults` None selects the built-in schedule."""
    import torch.distributed as dist

    from openmrc.train.torch_backend import Options, group_of

    dist.init_process_group(
        "mrc",
        init_method=f"tcp://{address}",
        rank=rank,
        world_size=size,
        timeout=_TIMEOUT,
        pg_options=Options(planes=str(planes), shared_memory=False),  # the faults are of planes
    )
    try:
        train(min(steps, 5))  # warm-up
        undisturbed = train(steps)
        chosen = [faults if faults is not None else schedule(undisturbed.at[-1], planes)]
        dist.broadcast_object_list(chosen, src=0)
        dist.barrier()
        group_of().context.impair(chosen[0])
        return Outcome(undisturbed, train(steps), chosen[0])
    finally:
        dist.destroy_process_group()


def train(steps: int) -> Training:
    """Train a new network from fixed seeds."""
    import torch
    import torch.distributed as dist
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    layers = (nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    network = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    result = Training([], [], [], -_retransmitted(), 0.0)
    begun = time.monotonic()
    for step in range(steps):
        started = time.monotonic()
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(step))
        mine = order[dist.get_rank() * BATCH :][:BATCH]
        loss = nn.functional.cross_entropy(network(images[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.loss.append(loss.item())
        result.at.append(time.monotonic() - begun)
        result.seconds.append(time.monotonic() - started)
    result.retransmitted += _retransmitted()
    with torch.no_grad():
        result.right = float((network(images).argmax(1) == labels).float().mean())
    return result


def _retransmitted() -> int:
    """Return the packets that this process has retransmitted; 0 with other backends, which do not count them."""
    import torch.distributed as dist

    from openmrc.train.torch_backend import group_of

    if dist.get_backend() != "mrc":
        return 0
    return sum(plane.retransmitted for plane in group_of().context.plane_counters())
