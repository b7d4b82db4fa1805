"""A job for torchrun with Hugging Face's `Trainer` on backend `mrc`, or on the backend of its argument.

It logs, accumulates gradients, evaluates with metrics, stops early, keeps the best checkpoint and goes on from it.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from tests.train.pytorch.torch_trainers import batch, network, tell

SHOWN = ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_error", "eval_count")


class Model(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, inputs: Any, labels: Any) -> dict[str, Any]:
        outputs = self.network(inputs)
        return {"loss": (outputs - labels).square().mean(), "logits": outputs}


class Losses(TrainerCallback):
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        tell(state.global_step, {name: logs[name] for name in SHOWN if name in logs})


def samples(steps: range) -> list[dict[str, Any]]:
    return [
        {"inputs": one, "labels": other}
        for inputs, targets in (batch(step, 0) for step in steps)
        for one, other in zip(inputs, targets, strict=True)
    ]


def metrics(found: Any) -> dict[str, float]:
    return {"error": float(abs(found.predictions - found.label_ids).max()), "count": float(len(found.label_ids))}


def trainer(folder: str, epochs: int) -> Any:
    arguments = TrainingArguments(
        folder,
        use_cpu=True,
        seed=5,
        num_train_epochs=epochs,
        per_device_train_batch_size=6,
        gradient_accumulation_steps=2,
        learning_rate=0.02,
        max_grad_norm=0.5,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        report_to=[],
        disable_tqdm=True,
    )
    stop = EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=0.05)
    data = {"train_dataset": samples(range(8)), "eval_dataset": samples(range(8, 11))[:31]}
    return Trainer(Model(), arguments, **data, compute_metrics=metrics, callbacks=[Losses(), stop])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1])  # before the arguments, which take the group that exists
    with tempfile.TemporaryDirectory() as mine:
        folders = [mine]
        dist.broadcast_object_list(folders)
        first = trainer(folders[0], 12)
        first.train()
        tell("stopped", first.state.global_step, first.state.best_metric)
        assert first.state.epoch < 12, "it did not stop early"
        second = trainer(folders[0], 12)
        second.train(resume_from_checkpoint=get_last_checkpoint(folders[0]))
        tell("went on to", second.state.global_step, second.evaluate()["eval_loss"])
        dist.barrier()
    assert dist.get_backend() == sys.argv[1]
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
