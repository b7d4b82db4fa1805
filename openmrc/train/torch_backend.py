"""The `torch.distributed` backend `mrc`: collectives over MRC.

    import torch.distributed as dist
    import openmrc.train.torch_backend        # registers it; `import torch` does so if openmrc is installed

    dist.init_process_group("mrc")            # planes: $MRC_PLANES, else the interfaces
    dist.init_process_group("mrc", pg_options=Options(planes=["10.1.0.7", "10.2.0.7"]))

Importing this module registers the backend; the transport is loaded when a group is created. Tested with PyTorch 2.13.
"""

from typing import Any  # and no postponed annotations: DDP reads those of its hooks

import torch
import torch.distributed as dist

from openmrc.train.pytorch.options import Options
from openmrc.train.pytorch.quorum import Quorum
from openmrc.train.pytorch.registration import autoload, group_of, register

__all__ = ["Options", "Quorum", "autoload", "bfloat16_hook", "group_of", "register"]


def bfloat16_hook(process_group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average gradients as bfloat16, at half the bytes of float32; for `DistributedDataParallel.register_comm_hook`.

    Torch's `bf16_compress_hook` does the same for CUDA alone: DDP refuses it, by its name, on any other device. Each
    addition is made in 32 bits and rounded.
    """
    group = process_group if process_group is not None else dist.group.WORLD
    gradients = bucket.buffer()
    narrow = gradients.to(torch.bfloat16).div_(dist.get_world_size(group))

    def widen(future: Any) -> Any:
        gradients.copy_(future.value()[0])
        return gradients

    future: torch.futures.Future[torch.Tensor] = (
        dist.all_reduce(narrow, group=group, async_op=True).get_future().then(widen)
    )
    return future


register()
