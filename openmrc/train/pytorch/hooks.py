"""Communication hooks of DDP, which reads their annotations: they must be classes, not text."""

from typing import Any

import torch
import torch.distributed as dist


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
