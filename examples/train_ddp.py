"""Train a classifier of handwritten digits on several ranks with DDP, over planes that fail meanwhile.

    pip install '.[examples]' in the clone
    MRC_PLANES=4 torchrun --nproc-per-node 2 examples/train_ddp.py --faults "at: 1s, for: 1s, down: plane 1"

Rank 0 prints the losses and draws them, with the step times and the faults, into training.svg. The numbers printed
are the same, digit for digit, with and without faults; with `--backend gloo` the same script runs over TCP.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from openmrc.report.training import Course, drawing
from openmrc.train.torch_backend import Options, group_of

BATCH = 32  # images of a rank in each step


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 64, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="mrc", choices=["mrc", "gloo"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--faults", default="", help="schedule of what happens to packets that arrive at each rank")
    parser.add_argument("--out", type=Path, default=Path("training.svg"))
    options = parser.parse_args()

    torch.set_num_threads(1)
    # Faults are of planes, which ranks of one host do not need while they share memory.
    pg_options = Options(shared_memory=not options.faults) if options.backend == "mrc" else None
    dist.init_process_group(options.backend, pg_options=pg_options)
    rank, size = dist.get_rank(), dist.get_world_size()
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    network = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

    dist.barrier()
    planes = 0
    if options.backend == "mrc":
        group = group_of()
        planes = len(group.context.address.planes)
        if options.faults:
            group.context.impair(options.faults)
    course = Course(
        title=f"{size} ranks, {options.backend}", at=[], loss=[], seconds=[], planes=planes, faults=options.faults
    )
    begun = time.monotonic()
    for step in range(options.steps):
        started = time.monotonic()
        if options.backend == "mrc":
            group.step(step)  # for `mrc train explain`
        chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(step))[rank * BATCH :][:BATCH]
        loss = nn.functional.cross_entropy(network(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = time.monotonic()
        course.at.append(now - begun)
        course.seconds.append(now - started)
        course.loss.append(loss.item())
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.9f}, {course.seconds[-1] * 1e3:.1f} ms", flush=True)

    with torch.no_grad():
        right = (network(images).argmax(1) == labels).float().mean()
    if rank == 0:
        options.out.write_text(drawing(course), "utf-8")
        print(f"last loss {course.loss[-1]:.9f}, {right:.2%} of the images right; drawing: {options.out}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
