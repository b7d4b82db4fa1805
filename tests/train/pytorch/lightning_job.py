"""A job for torchrun as Lightning's users write them, on backend `mrc`, or on the backend of its argument.

It logs losses, counts and metrics of all ranks, accumulates gradients, stops early, keeps the best checkpoint, goes on
from it, and validates.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
import torchmetrics
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy

from tests.train.pytorch.torch_trainers import batch, network, sgd, tell


class Batches(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc, unused-ignore]
    def __init__(self, first: int) -> None:
        self.steps = range(first, first + 4)

    def __iter__(self) -> Any:
        return (batch(step, dist.get_rank()) for step in self.steps)


class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.error = torchmetrics.MeanSquaredError()
        self.correlation = torchmetrics.PearsonCorrCoef()

    def training_step(self, given: Any, step: int) -> Any:
        inputs, targets = given
        loss = (self.network(inputs) - targets).square().mean()
        self.log("train_loss", loss, sync_dist=True, on_step=True, on_epoch=True)
        tell("step", step, loss.item())
        return loss

    def validation_step(self, given: Any, step: int) -> None:
        inputs, targets = given
        outputs = self.network(inputs)
        self.error(outputs, targets)
        self.correlation.update(outputs.flatten(), targets.flatten())
        self.log("error", self.error)
        self.log("count", torch.tensor(len(inputs) + dist.get_rank()), sync_dist=True, reduce_fx="sum")
        self.log("mean_count", torch.tensor(len(inputs) + dist.get_rank()), sync_dist=True)  # integers, averaged
        self.log("valid_loss", (outputs - targets).square().mean(), sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        self.log("correlation", self.correlation.compute())
        self.correlation.reset()

    def configure_optimizers(self) -> Any:
        return sgd(self.parameters())


def trainer(folder: Path, epochs: int, *callbacks: Any) -> Any:
    return lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend=sys.argv[1]),
        max_epochs=epochs,
        accumulate_grad_batches=2,
        log_every_n_steps=1,
        logger=CSVLogger(folder),
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def main() -> None:
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    folder = Path(tempfile.gettempdir(), f"lightning-{os.environ['TORCHELASTIC_RUN_ID']}-{sys.argv[1]}")
    data = [torch.utils.data.DataLoader(Batches(first), batch_size=None) for first in (0, 4)]
    stop = EarlyStopping("valid_loss", patience=1, min_delta=0.1)
    best = ModelCheckpoint(folder, monitor="valid_loss", save_top_k=1)
    first = trainer(folder, 8, stop, best)
    first.fit(Module(), *data)
    assert dist.get_backend() == sys.argv[1]
    second = trainer(folder, first.current_epoch + 2)
    second.fit(Module(), *data, ckpt_path=best.best_model_path)
    for each in (first, second):
        tell(each.current_epoch, {name: float(value) for name, value in each.callback_metrics.items()})
    found = second.validate(second.lightning_module, data[1], verbose=False)
    tell(found, stop.stopped_epoch, Path(best.best_model_path).name)
    assert 0 < stop.stopped_epoch < 7, "it did not stop early"
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
