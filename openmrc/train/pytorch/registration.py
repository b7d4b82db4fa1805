"""Registration of backend `mrc` with torch. The transport is loaded only when a group is created."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from openmrc.train.errors import UnsupportedError
from openmrc.train.pytorch.options import NAME

if TYPE_CHECKING:
    from openmrc.train.group import Group


def register() -> None:
    """Register the backend, once; do nothing if torch was built without `torch.distributed`."""
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=_devices())


def autoload() -> None:
    """Do nothing: loading the entry point `torch.backends` imports the module, which registers the backend."""


def group_of(process_group: Any = None) -> Group:
    """Return the `Group` of a process group (None: the default one), for its recorder, steps and faults.

    Raises UnsupportedError if the process group has another backend.
    """
    backend = _backend_of(process_group)
    group: Group | None = getattr(backend, "group", None)
    if group is None:
        raise UnsupportedError(f"process group: its backend is {backend.name()}, not {NAME}")
    return group


def _backend_of(process_group: Any) -> Any:
    chosen = process_group if process_group is not None else dist.distributed_c10d._get_default_group()
    return chosen if hasattr(chosen, "group") else chosen._get_backend(_cpu())


def _check_alone() -> None:
    """Raise UnsupportedError if the process group is to have other backends too, as in "cpu:mrc,cuda:nccl".

    Where Python cannot derive from torch's `Backend`, as in 2.13, torch takes the group of this backend for the whole
    process group and drops the others without a word. It does not pass them on, so they are read from its frame.
    """
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = frame.f_locals.get("backend_config")
    backends = {} if config is None else config.get_device_backend_map()
    others = {device: name for device, name in backends.items() if name != NAME}
    if others:
        given = ",".join(f"{device}:{name}" for device, name in backends.items())
        raise UnsupportedError(
            f"backend: {given}: this version of torch cannot combine mrc with another backend in one process group; "
            'call init_process_group with one of them, and dist.new_group(backend="mrc") for CPU tensors'
        )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Hold Python's collector of cycles: it takes a third of the time of loading the transport, and frees nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collector()
def _create(torch_options: Any, options: Any) -> Any:
    from openmrc.train.pytorch.membership import Membership
    from openmrc.train.pytorch.process_group import SHAPE, ReconfigurableProcessGroup, Shape, create

    changes = getattr(torch_options, "enable_reconfigure", False)  # new in torch 2.14
    if changes or SHAPE == Shape.PROCESS_GROUP:
        _check_alone()
    _patch_torch()
    member = Membership(
        torch_options.store,
        torch_options.group_rank,
        torch_options.group_size,
        torch_options.group_id,
        torch_options.timeout.total_seconds(),
        torch_options.global_ranks_in_group,
    )
    return ReconfigurableProcessGroup(member, options) if changes else create(member, options)


@functools.cache
def _patch_torch() -> None:
    """Replace `dist.monitored_barrier`, which accepts only Gloo, by a function that also accepts `mrc` groups.

    So with `dist.recv`: torch 2.14 keeps the work of a backend in Python from saying which rank a receive was from.
    """
    original, receive = dist.monitored_barrier, dist.recv

    @functools.wraps(original)
    def dispatch(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> Any:
        is_member = group is not dist.GroupMember.NON_GROUP_MEMBER
        if is_member and dist.is_initialized() and dist.get_backend(group) == NAME:
            given = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
            return _backend_of(group).monitored_barrier(given, wait_all_ranks)
        return original(group, timeout, wait_all_ranks)

    @functools.wraps(receive)
    def recv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Any:
        is_member = group is not dist.GroupMember.NON_GROUP_MEMBER
        if src is None and group_src is None and is_member and dist.get_backend(group) == NAME:
            process_group = group if group is not None else dist.distributed_c10d._get_default_group()
            work = process_group._get_backend(_cpu()).recv_anysource([tensor], tag)
            work.wait()
            return dist.get_global_rank(process_group, work._source_rank())
        return receive(tensor, src, group, tag, group_src)

    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = dispatch
    dist.recv = dist.distributed_c10d.recv = recv


def _devices() -> list[str]:
    """Return the types of devices whose tensors are taken: the CPU, and what this torch was built for."""
    import torch

    device = torch.accelerator.current_accelerator()
    return ["cpu"] if device is None else ["cpu", device.type]


def _cpu() -> Any:
    import torch

    return torch.device("cpu")
