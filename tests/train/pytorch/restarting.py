"""A job for torchrun: rank 1 is killed in the middle of a step, the restarted job goes on from its checkpoint.

It trains one network with DDP and one with FSDP2, in turns. Arguments: a folder, and `dies` or `lives`. Each rank
writes the losses of all steps into the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.train.pytorch.torch_trainers import fit, network

STEPS, KILLED_AT = 6, 3


def main() -> None:
    folder, dies = Path(sys.argv[1]), sys.argv[2] == "dies"
    torch.set_num_threads(1)
    dist.init_process_group("mrc")
    modules = DistributedDataParallel(network()), fully_shard(network())
    optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in modules]
    log = folder / f"losses{dist.get_rank()}.json"
    losses = json.loads(log.read_text()) if log.exists() else []
    for number, module in enumerate(modules if losses else ()):
        state = get_model_state_dict(module)
        checkpoint.load(state, checkpoint_id=folder / f"state{number}")
        set_model_state_dict(module, state)
    for step in range(len(losses), STEPS):
        if step == KILLED_AT and dist.get_rank() == 1 and dies and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        losses.append([fit(*each, [step]) for each in zip(modules, optimizers, strict=True)])
        for number, module in enumerate(modules):
            checkpoint.save(get_model_state_dict(module), checkpoint_id=folder / f"state{number}")
        log.write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
