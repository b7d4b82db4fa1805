"""A job for torchrun that trains with Hugging Face's `Trainer` on backend `mrc`, or on the backend of its argument."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback, TrainingArguments

from tests.train.pytorch.torch_trainers import batch, network


class Model(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, inputs: Any, labels: Any) -> dict[str, Any]:
        outputs = self.network(inputs)
        return {"loss": (outputs - labels).square().mean(), "logits": outputs}


class Losses(TrainerCallback):
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in logs:
            sys.stdout.write(f"loss {dist.get_rank()} {state.global_step} {logs['loss']} {logs['grad_norm']}\n")
            sys.stdout.flush()


def samples() -> list[dict[str, Any]]:
    steps = [batch(step, 0) for step in range(8)]
    return [
        {"inputs": one, "labels": other}
        for inputs, targets in steps
        for one, other in zip(inputs, targets, strict=True)
    ]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1])  # before the arguments, which take the group that exists
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=12,
            max_steps=4,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(Model(), arguments, train_dataset=samples(), callbacks=[Losses()])
        trainer.train()
    assert dist.get_backend() == sys.argv[1]
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
