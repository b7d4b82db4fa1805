"""Writes that are checked once and posted in one call: what a program needs for messages of a few bytes."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from openmrc.core.rows import dtype_of
from openmrc.engine.messages import MAX_MESSAGE
from openmrc.live.datapath.rows import COMMANDS, PostCommand
from openmrc.live.errors import InvalidArgumentError
from openmrc.live.objects.memory import MemoryRegion

Signaled = Literal["last", "all", "none"]
_SIGNALED: tuple[Signaled, ...] = ("last", "all", "none")


class WriteBatch:
    """Writes from one memory region to one remote region, to be posted together, as often as wanted.

    A `SendWr` costs some microseconds to make and check; a batch costs that once, for all its writes.
    """

    def __init__(
        self,
        local: MemoryRegion,
        remote_addr: int,
        r_key: int,
        *,
        lengths: ArrayLike | Sequence[int],
        local_offsets: ArrayLike | Sequence[int] = 0,
        remote_offsets: ArrayLike | Sequence[int] = 0,
        wr_id: int = 0,
        signaled: Signaled = "last",
    ) -> None:
        """Check and keep the writes; EINVAL if an argument is wrong.

        `lengths`, `local_offsets` and `remote_offsets` are bytes, one number for all writes or one for each of at most
        256. `wr_id` is that of every completion; `signaled` says which writes complete on success.
        """
        length, source, target = _columns(lengths, local_offsets, remote_offsets)
        self.region = local
        self.rows = np.zeros(len(length), dtype_of(PostCommand))
        _check_local(local, source, length)
        _check_remote(remote_addr, r_key, target)
        if signaled not in _SIGNALED:
            raise InvalidArgumentError(f"signaled: {signaled!r} is not one of {', '.join(_SIGNALED)}")
        if not 0 <= wr_id < 1 << 64:
            raise InvalidArgumentError(f"wr_id: {wr_id:#x} is not a number of 64 bits")
        self.rows["wr_id"] = np.uint64(wr_id).view(np.int64)
        self.rows["local"] = local.addr + source
        self.rows["length"] = length
        self.rows["va"] = (np.uint64(remote_addr) + target.view(np.uint64)).view(np.int64)
        self.rows["r_key"] = r_key
        self.rows["l_key"] = local.key
        self.rows["signaled"] = signaled == "all"
        self.rows["signaled"][-1] |= signaled == "last"
        self.words = self.rows.view(np.int64).reshape(len(self.rows), -1)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<WriteBatch of {len(self)} writes, {int(self.rows['length'].sum())} bytes, from {self.region!r}>"


def _columns(*given: Any) -> list[Any]:
    """Return arrays of one length."""
    try:
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(each)) for each in given))
    except ValueError as error:
        raise InvalidArgumentError(f"lengths, local_offsets, remote_offsets: of different lengths ({error})") from None
    if columns[0].ndim != 1 or not 1 <= len(columns[0]) <= COMMANDS:
        raise InvalidArgumentError(f"lengths: {columns[0].shape} writes; a batch has 1 to {COMMANDS}")
    if any(each.dtype.kind not in "iu" for each in columns):
        raise InvalidArgumentError("lengths, local_offsets, remote_offsets: not all are whole numbers")
    return [np.ascontiguousarray(each, np.int64) for each in columns]


def _check_local(local: MemoryRegion, offset: Any, length: Any) -> None:
    if not isinstance(local, MemoryRegion):
        raise InvalidArgumentError(f"local: {local!r} is not a memory region")
    wrong = np.flatnonzero((offset < 0) | (length < 0) | (length > MAX_MESSAGE) | (offset > local.length - length))
    if len(wrong):
        begin, count = int(offset[wrong[0]]), int(length[wrong[0]])
        raise InvalidArgumentError(
            f"local: write {wrong[0]} reads bytes {begin} to {begin + count} of a region of {local.length}"
        )


def _check_remote(remote_addr: int, r_key: int, offset: Any) -> None:
    if not 0 <= remote_addr < 1 << 64 or not 0 <= r_key < 1 << 32:
        raise InvalidArgumentError(f"remote_addr, r_key: {remote_addr:#x}, {r_key:#x} are not 64 and 32 bits")
    if int(offset.min()) < 0 or remote_addr + int(offset.max()) >= 1 << 64:
        raise InvalidArgumentError("remote_offsets: below 0 or beyond 64 bits of address")
