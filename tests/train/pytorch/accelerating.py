"""A job for torchrun as Accelerate's users write them, on backend `mrc`, or on the backend of its argument.

It accumulates and clips gradients, schedules the rate, gathers metrics of an uneven last batch, saves its state and
loads it again.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed

from tests.train.pytorch.torch_trainers import batch, network, sgd, tell

EPOCHS, SAMPLES = 3, 44  # the last of four batches of 12 is shorter


def loader() -> Any:
    parts = [batch(step, 0) for step in range(4)]
    inputs, targets = (torch.cat([part[side] for part in parts])[:SAMPLES] for side in range(2))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=6, shuffle=True)


def train_epoch(accelerator: Any, parts: Any) -> None:
    module, optimizer, data, schedule = parts
    module.train()
    for step, (inputs, targets) in enumerate(data):
        with accelerator.accumulate(module):
            loss = (module(inputs) - targets).square().mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        tell("step", step, accelerator.gather(loss.detach()).tolist())


def evaluate(accelerator: Any, module: Any, data: Any) -> None:
    module.eval()
    errors = []
    with torch.no_grad():
        for inputs, targets in data:
            error = (module(inputs) - targets).square().mean(1)
            errors.append(accelerator.gather_for_metrics(error))
    whole = torch.cat(errors)
    assert len(whole) == SAMPLES, "repeated samples of the last batch count once"
    tell("error", whole.mean().item(), accelerator.reduce(torch.tensor(len(whole)), "sum").item())


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1])  # before Accelerate, which knows only torch's own backends
    set_seed(3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    module = network()
    optimizer = sgd(module.parameters())
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.2, 16)
    parts = accelerator.prepare(module, optimizer, loader(), schedule)
    with tempfile.TemporaryDirectory() as mine:
        folder = broadcast_object_list([mine])[0]
        for epoch in range(EPOCHS):
            train_epoch(accelerator, parts)
            if epoch == 0:
                accelerator.save_state(folder)
        evaluate(accelerator, parts[0], parts[2])
        accelerator.wait_for_everyone()
        accelerator.load_state(folder)  # back to the end of the first epoch
        train_epoch(accelerator, parts)
        evaluate(accelerator, parts[0], parts[2])
        accelerator.wait_for_everyone()
    assert dist.get_backend() == sys.argv[1]
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
