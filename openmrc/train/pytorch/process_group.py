"""The class that torch uses: a backend where Python can derive from torch's, else a whole process group.

PyTorch 2.13 has no Python constructor for `Backend`, so `MrcProcessGroup` implements the whole process group. Later
versions have one (`BackendBase`, or `Backend(rank, size)`), and torch wraps its own process group around the backend.
"""

from __future__ import annotations

import hashlib
import uuid
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from openmrc.errors import MrcError
from openmrc.train.errors import AbortedError, UnsupportedError
from openmrc.train.group import Group
from openmrc.train.links.devices import ENDPOINTS
from openmrc.train.links.mesh import report_failure
from openmrc.train.pytorch import membership
from openmrc.train.pytorch.collectives import Collectives
from openmrc.train.pytorch.membership import Membership
from openmrc.train.pytorch.options import NAME, Options
from openmrc.train.pytorch.staging import accelerator
from openmrc.train.pytorch.works import MrcWork

_CPU = torch.device("cpu")


class Shape(Enum):
    """What the installed torch allows Python to implement."""

    BACKEND = "a backend in torch's own process group"
    PROCESS_GROUP = "a process group"


def base_of(module: Any) -> tuple[Shape, Any]:
    """Return (shape, base class): the newest class of torch._C._distributed_c10d that Python can derive from."""
    for name in ("BackendBase", "_Backend", "Backend"):
        base = getattr(module, name, None)
        if base is not None and _is_constructible(base):
            return Shape.BACKEND, base
    return Shape.PROCESS_GROUP, module.ProcessGroup


def _is_constructible(base: type) -> bool:
    try:
        type("Probe", (base,), {})(0, 1)
    except TypeError:
        return False
    return True


_BASE: Any  # the annotation keeps mypy from asking for a class that it knows: torch decides at import
SHAPE, _BASE = base_of(c10d)
_WHOLE: Any = c10d.ProcessGroup  # its stub lacks the constructor for classes that Python derives


class _Lifecycle(Collectives):
    """The collectives of backend `mrc`, and the attributes and lifecycle methods that torch calls."""

    supports_splitting = False
    supports_coalescing = True
    supports_time_estimate = False

    _name = ""
    _description = ""
    _is_open = False

    def begin(self, group: Group) -> None:
        Collectives.__init__(self, group)
        self._is_open = True

    def name(self) -> str:
        return NAME

    getBackendName = name  # noqa: N815  # as C++ calls it

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Return False: tensors need no special memory."""
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        self.group.set_timeout(timeout.total_seconds())

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: all ranks of a group count from 1."""

    def _get_sequence_number_for_group(self) -> int:
        return self.group.sequence

    def get_error(self) -> Any:
        """Return torch's type of the error that ended the group."""
        kinds = c10d.ErrorType
        error = self.group.error
        if error is None:
            return kinds.SUCCESS
        if isinstance(error, TimeoutError):
            return kinds.TIMEOUT
        return kinds.REMOTE_ERROR if error.is_from_peer else kinds.COMM_ERROR

    def abort(self) -> None:
        """End all operations in progress, here and at the other ranks, and leave the group."""
        with suppress(AbortedError):
            self.group.abort("the process group was aborted")
        self.shutdown()

    def shutdown(self) -> None:
        """Leave the group and free its resources."""
        if not self._is_open:
            return
        self._is_open = False
        context, queue_pairs = self.group.context, self.group.size - 1
        try:
            self.group.close()
        finally:
            self.futures.close()
            self.on_host.futures.close()
            ENDPOINTS.give_back(context, queue_pairs)

    def __repr__(self) -> str:
        return f"<mrc process group {self._name}: rank {self.group.rank} of {self.group.size}>"


class MrcBackend(_Lifecycle, _BASE):
    """The backend in torch's own process group."""

    def __init__(self, group: Group, name: str) -> None:
        _BASE.__init__(self, group.rank, group.size)
        self._name = name
        self.begin(group)


class MrcProcessGroup(_Lifecycle, _WHOLE):
    """The whole process group, for versions of torch in which Python cannot derive from `Backend`."""

    supports_coalescing = False  # torch then starts the calls of a batch individually, with the same effect

    def __init__(self, group: Group, name: str) -> None:
        _WHOLE.__init__(self, group.rank, group.size)
        self._name = name
        self.begin(group)

    def getGroupName(self) -> str:  # noqa: N802
        """Return torch's name of the group; C++ calls this method and the three below."""
        return self._name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._description = description

    group_name, group_desc = property(getGroupName), property(getGroupDesc)
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    _get_backend_name = _Lifecycle.name

    @property
    def _device_types(self) -> list[Any]:
        return [_CPU, *([torch.device(kind)] if (kind := accelerator()) else [])]

    def _get_backend(self, device: Any) -> MrcProcessGroup:
        if torch.device(device).type not in ("cpu", accelerator()):
            raise RuntimeError(f"backend mrc supports no tensors on {device}")
        return self

    def _start_coalescing(self, device: Any) -> None:
        self.start_coalescing()

    def _end_coalescing(self, device: Any) -> MrcWork:
        return self.end_coalescing()


class ReconfigurableProcessGroup(MrcProcessGroup):
    """A process group whose ranks are given by `reconfigure`, at first and each time that some come or go.

    It is a whole process group with every torch: what Python derives from `Backend` cannot change its rank and size.
    """

    supports_reconfigure = True

    def __init__(self, member: Membership, options: Options | None) -> None:
        """`member` has the store through which ranks connect, and rank and size until the first `reconfigure`."""
        _WHOLE.__init__(self, member.rank, member.size)
        self._name = member.torch_name
        self._member, self._options = member, options
        self._handle = uuid.uuid4().hex
        self._used: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        why = "" if self._is_open else ": this process group has no ranks before its first reconfigure"
        raise AttributeError(f"{name}{why}")

    def getRank(self) -> int:  # noqa: N802
        """Return the rank; C++ calls this method and the next."""
        return self._member.rank

    def getSize(self) -> int:  # noqa: N802
        return self._member.size

    def get_reconfigure_handle(self) -> str:
        """Return what names this process in `handles`, as long as it lives."""
        return self._handle

    def reconfigure(self, opts: Any) -> MrcWork:
        """Leave the ranks before and connect to those of `opts.handles`, ranked by a list's order, else sorted.

        All of them must call with the same `uuid`, new to each, and have one store. What is under way ends first.
        Raises UnsupportedError for a used `uuid` or a missing handle; other errors as of `Group`.
        """
        handles = opts.handles if isinstance(opts.handles, list) else sorted(opts.handles)
        if opts.uuid in self._used:
            raise UnsupportedError(f"reconfigure: uuid {opts.uuid} was already used")
        if self._handle not in handles:
            raise UnsupportedError("reconfigure: the handle of this process is not among the handles")
        self.shutdown()
        self._used.add(opts.uuid)
        digest = hashlib.sha256(" ".join(handles).encode()).hexdigest()[:8]
        seconds = self._member.timeout if opts.timeout is None else opts.timeout.total_seconds()
        member = replace(self._member, rank=handles.index(self._handle), size=len(handles), timeout=seconds, ranks=())
        self.begin(connect(replace(member, torch_name=f"{self._name}/{opts.uuid}/{digest}"), self._options))
        self._member = replace(member, timeout=self._member.timeout)
        self.group.set_timeout(self._member.timeout)
        return MrcWork((), [], self.futures, None)


def create(member: Membership, options: Options | None) -> MrcBackend | MrcProcessGroup:
    """Connect to the other ranks and return the object that torch uses; errors as of `Group`."""
    kind = MrcBackend if SHAPE == Shape.BACKEND else MrcProcessGroup
    return kind(connect(member, options), member.torch_name)


def connect(member: Membership, options: Options | None) -> Group:
    """Connect to the other ranks; errors as of `Group`, UnsupportedError for options of another backend."""
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise UnsupportedError(f"pg_options: backend mrc requires its own Options, not {type(options).__name__}")
    rank, size = member.rank, member.size
    name = membership.join(member.store, membership.name_of(member.torch_name, member.ranks), rank)
    try:
        context = ENDPOINTS.take(options.planes, size - 1, options.faults)
    except MrcError as error:
        report_failure(member.store, f"mrc/{name}", rank, str(error), size)
        raise
    try:
        shares = options.shared_memory and options.faults is None
        return Group(
            member.store,
            rank,
            size,
            timeout=member.timeout,
            name=name,
            context=context,
            timers=options.timers,
            shared_memory=shares,
            compares_results=dist.get_debug_level() == dist.DebugLevel.DETAIL,
        )
    except BaseException:
        ENDPOINTS.give_back(context, size - 1)
        raise
