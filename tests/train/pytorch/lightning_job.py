"""A job for torchrun that trains with Lightning on backend `mrc`, or on the backend of its argument."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy

from tests.train.pytorch.torch_trainers import batch, network, sgd


class Batches(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc, unused-ignore]
    def __iter__(self) -> Any:
        return (batch(step, dist.get_rank()) for step in range(4))


class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def training_step(self, given: Any, step: int) -> Any:
        inputs, targets = given
        loss = (self.network(inputs) - targets).square().mean()
        sys.stdout.write(f"loss {dist.get_rank()} {step} {loss.item()}\n")
        sys.stdout.flush()
        return loss

    def configure_optimizers(self) -> Any:
        return sgd(self.parameters())


def main() -> None:
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend=sys.argv[1]),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(Batches(), batch_size=None))
    assert dist.get_backend() == sys.argv[1]
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
