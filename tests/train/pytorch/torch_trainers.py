"""Trainers that the rank processes of `test_torch_trainers` run on any backend: each returns the losses of its steps.

Models and data are the same at all ranks and backends, so losses may differ only by the order of additions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
WIDTH = 32


def network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(16, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(12, 16, generator=generator)
    return inputs, inputs[:, :8].cos()


def fit(module: Callable[..., Any], optimizer: Any, steps: Iterable[int] = range(STEPS), *, rank: int = -1) -> Any:
    """Return the losses of training steps; `rank` chooses the data, -1: this rank's."""
    rank = dist.get_rank() if rank < 0 else rank
    losses = []
    for step in steps:
        inputs, targets = batch(step, rank)
        optimizer.zero_grad()
        loss = (module(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def tell(*words: object) -> None:
    """Print a line of a job whose lines are compared over backends."""
    sys.stdout.write(f"loss {dist.get_rank()} {' '.join(map(str, words))}\n")
    sys.stdout.flush()


def fits_fsdp1() -> list[float]:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    cpu = torch.device("cpu")
    module = FullyShardedDataParallel(network(), device_id=cpu, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
    return fit(module, sgd(module.parameters()))


def fits_fsdp2() -> list[float]:
    from torch.distributed.fsdp import fully_shard

    module = network()
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(module)
    return fit(module, sgd(module.parameters()))


def fits_zero() -> list[float]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module = DistributedDataParallel(network())
    return fit(module, ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, lr=0.01))


def fits_compiled_ddp() -> list[float]:
    module = DistributedDataParallel(network())
    losses = fit(torch.compile(module, backend="aot_eager"), sgd(module.parameters()))
    torch.compiler.reset()
    return losses


def fits_with_fp16_hook() -> list[float]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    module = DistributedDataParallel(network())
    module.register_comm_hook(None, fp16_compress_hook)
    return fit(module, sgd(module.parameters()))


def fits_with_bfloat16_hook() -> list[float]:
    from openmrc.train.torch_backend import bfloat16_hook

    module = DistributedDataParallel(network())
    module.register_comm_hook(None, bfloat16_hook)
    return fit(module, sgd(module.parameters()))


def fits_with_powersgd() -> list[float]:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    module = DistributedDataParallel(network())
    module.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook)
    return fit(module, sgd(module.parameters()))


def fits_with_accumulated_gradients() -> list[float]:
    """Reduce in every third backward pass alone, into views of the buckets, and clip the norm."""
    module = DistributedDataParallel(network(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(module.parameters(), 0.01)
    losses = []
    for step in range(3 * STEPS):
        is_last = step % 3 == 2
        inputs, targets = batch(step, dist.get_rank())
        with nullcontext() if is_last else module.no_sync():
            loss = (module(inputs) - targets).square().mean()
            (loss / 3).backward()
        if is_last:
            nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
    return losses


def fits_with_uneven_inputs() -> list[float]:
    """Each rank has a step more than the one before it; those that are done shadow the others' collectives."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, lr=0.1)
    with Join([module, optimizer]):
        return list(fit(module, optimizer, range(STEPS + dist.get_rank())))


def fits_experts() -> list[float]:
    """Send each token to the rank that has its expert, and back; how many is exchanged first, and may be none."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    rank, size = dist.get_rank(), dist.get_world_size()
    module = network()
    optimizer = sgd(module.parameters())
    losses = []
    for step in range(STEPS):
        inputs, targets = batch(step, rank)
        chosen = torch.zeros(len(inputs), dtype=torch.int64) if step == 1 else (inputs[:, 0] > 0).long() % size
        order = chosen.argsort(stable=True)
        sent = torch.bincount(chosen, minlength=size)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        there, back = received.tolist(), sent.tolist()
        tokens = all_to_all_single_autograd(inputs[order], there, back, dist.group.WORLD)
        outputs = all_to_all_single_autograd(module(tokens), back, there, dist.group.WORLD)
        optimizer.zero_grad()
        loss = (outputs - targets[order]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fits_tensor_parallel() -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module = network()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return fit(module, sgd(module.parameters()), rank=0)


def fits_pipeline() -> list[float]:
    """Train two stages; the loss is known at the last one."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, size = dist.get_rank(), dist.get_world_size()
    layers = network()
    stage_module = layers[:2] if rank == 0 else layers[2:]
    stage = PipelineStage(stage_module, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 3, loss_fn=lambda out, target: (out - target).square().mean())
    optimizer = sgd(stage_module.parameters())
    means = []
    for step in range(STEPS):
        inputs, targets = batch(step, 0)
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        schedule.step(*((inputs,) if rank == 0 else ()), target=targets, losses=losses)
        optimizer.step()
        means.append(sum(each.item() for each in losses))
    return means


def resumes_from_a_checkpoint(folder: str, is_async: bool) -> list[float]:
    """Train, save, spoil the model, load, and go on."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    module = network()
    fully_shard(module)
    optimizer = sgd(module.parameters())
    losses = fit(module, optimizer, range(2))
    model_state, optimizer_state = get_state_dict(module, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    path = Path(folder) / dist.get_backend()
    if is_async:
        checkpoint.async_save(state, checkpoint_id=path).result()
    else:
        checkpoint.save(state, checkpoint_id=path)
    fit(module, optimizer, range(50, 53))
    checkpoint.load(state, checkpoint_id=path)
    set_state_dict(module, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return losses + fit(module, optimizer, range(2, STEPS))
