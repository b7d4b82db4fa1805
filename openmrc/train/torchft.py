"""The process group that torchft reconfigures when a replica is lost or added, on backend `mrc`.

    from torchft import DistributedDataParallel, Manager
    from openmrc.train.torchft import ProcessGroupMrc

    manager = Manager(pg=ProcessGroupMrc(), min_replica_size=2, ...)

Each quorum gets a group of its own; the one before is aborted, which ends its pending work with an error. An error
travels in the future of a call and in `errored`, as with NCCL, whose `wait` raises none on the host: the manager of
torchft then drops the step. Tested with torchft 0.2.0, which is not a dependency: `pip install torchft`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Work as TorchWork
from torchft.process_group import ProcessGroupWrapper

from openmrc.train.errors import CollectiveError, UnsupportedError
from openmrc.train.pytorch.membership import Membership
from openmrc.train.pytorch.options import Options

TIMEOUT = timedelta(seconds=60)


class FutureErrorWork(TorchWork):
    """A work whose `wait` raises nothing; its future has the error."""

    def __init__(self, work: Any) -> None:
        super().__init__()
        self._work = work

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the call has finished; return whether it succeeded."""
        with suppress(CollectiveError):
            self._work.wait(timeout)
        return bool(self._work.is_success())

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the call has finished, successfully or not."""
        return bool(self._work.is_completed())

    def get_future(self) -> Any:
        """Return the future of the result, which has the error if the call failed."""
        return self._work.get_future()


class ProcessGroupMrc(ProcessGroupWrapper):
    """A reconfigurable process group over MRC."""

    def __init__(self, timeout: timedelta = TIMEOUT, options: Options | None = None) -> None:
        """`timeout` limits the rendezvous of each quorum and each collective."""
        super().__init__(timeout)
        self._options = options

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name that torchft registers."""
        return "torchft-mrc"

    def errored(self) -> Exception | None:
        """Return the error that ended the group of this quorum; None while it is usable."""
        return None if self._pg is None else self._pg.group.error

    def shutdown(self) -> None:
        """Leave the group and free its resources."""
        self.abort(errored=False)

    def _wrap_work(self, work: Any, opts: Any) -> FutureErrorWork:
        return FutureErrorWork(work)

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        from openmrc.train.pytorch.process_group import SHAPE, Shape, create

        if SHAPE != Shape.PROCESS_GROUP:
            raise UnsupportedError(
                "torchft: its group was tested with torch 2.13 alone, which takes whole process groups"
            )
        member = Membership(store, rank, world_size, "torchft", self._timeout.total_seconds())
        return create(member, self._options)
