"""A job for torchrun that trains with Accelerate on backend `mrc`, or on the backend of its argument."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator

from tests.train.pytorch.torch_trainers import batch, network, sgd


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1])  # before Accelerate, which knows only torch's own backends
    accelerator = Accelerator(cpu=True)
    module = accelerator.prepare(network())
    optimizer = accelerator.prepare(sgd(module.parameters()))
    for step in range(4):
        inputs, targets = batch(step, accelerator.process_index)
        optimizer.zero_grad()
        loss = (module(inputs) - targets).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        losses = accelerator.gather(loss.detach()).tolist()
        sys.stdout.write(f"loss {accelerator.process_index} {step} {losses}\n")
        sys.stdout.flush()
    accelerator.wait_for_everyone()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
