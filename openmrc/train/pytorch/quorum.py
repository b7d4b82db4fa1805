"""Agree on who takes part in a process group that shrinks and grows while its processes live (docs/elastic.md).

Each quorum has a number, and keys of its own in a store that outlives the ranks:

    joined        counter of the processes that have joined
    members       counter of those among them that were in the quorum before; in the first one, of all
    process/N     of the Nth that joined: the last quorum it was in, its rank there, and a token
    published     1 once a member has claimed to publish the roster
    roster        the tokens, in order of rank; whoever joined too late for it tries the next quorum

Members alone publish, at once when all have joined, else when nobody has joined for the settling time. If the first
member to join has ended meanwhile, the second one publishes after twice that time, and so on.
"""

import time
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from openmrc.train.errors import RendezvousError, UnsupportedError

_PREFIX = "mrc/quorum"
_POLL_SECONDS = 0.02
TIMEOUT = 300.0  # s


@dataclass(frozen=True)
class Seat:
    """The place of this process in one quorum: arguments of `init_process_group`."""

    number: int  # of the quorum, from 1; 0: before the first
    rank: int
    size: int
    store: Any = None  # with keys of its own for this quorum


class Quorum:
    """Membership of one process in the quorums of a job.

    seat = quorum.join()
    dist.init_process_group("mrc", store=seat.store, rank=seat.rank, world_size=seat.size)
    while not quorum.has_newcomers(): ...      # train; after a RuntimeError or newcomers:
    dist.destroy_process_group()               # and join again
    """

    def __init__(
        self, store: Any, *, least: int = 1, most: int | None = None, settle: float = 2.0, timeout: float = TIMEOUT
    ) -> None:
        """Prepare to join over a torch store that no rank serves, so that it outlives each of them.

        A quorum has `least` to `most` processes (None: any number); the first one is complete at once with `most`.
        `settle` (s) must be longer than the second within which all ranks learn of a loss. `timeout` (s) limits each
        `join`. Raises UnsupportedError for impossible limits.
        """
        if least < 1 or (most is not None and most < least):
            raise UnsupportedError(f"least, most: {least}, {most}: expected 1 <= least <= most")
        if not 0 < settle < timeout:
            raise UnsupportedError(f"settle, timeout: {settle:g}, {timeout:g} s: expected 0 < settle < timeout")
        self._store = store
        self._least, self._most = least, most
        self._settle, self._timeout = settle, timeout
        self._seat = Seat(0, 0, most or 0)  # the latest one

    def join(self) -> Seat:
        """Wait for the next quorum and return this process's place in it; RendezvousError after the timeout.

        Members of the quorum before come first, in their order, so that rank 0 has the newest state.
        """
        deadline = time.monotonic() + self._timeout
        number, token, roster = self._seat.number, "", [""]
        while token not in roster or not token:
            number, token = number + 1, uuid.uuid4().hex
            roster = self._roster(number, token, deadline)
        self._seat = Seat(number, roster.index(token), len(roster), self._store_of(number))
        return self._seat

    def has_newcomers(self, process_group: Any = None) -> bool:
        """Whether a process waits for a place; a collective (a broadcast of 8 bytes), equal at all ranks."""
        import torch
        import torch.distributed as dist

        waiting = torch.zeros(1, dtype=torch.int64)
        if self._seat.rank == 0:
            waiting[0] = self._count(self._seat.number + 1, "joined")
        dist.broadcast(waiting, 0, group=process_group)
        return self._seat.size != self._most and bool(waiting.item())

    def _roster(self, number: int, token: str, deadline: float) -> list[str]:
        """Join a quorum unless it is complete; return its tokens in order of rank."""
        prefix = f"{_PREFIX}/{number}"
        if not self._store.check([f"{prefix}/roster"]):
            order = self._store.add(f"{prefix}/joined", 1)
            latest = self._seat.number, self._seat.rank, token
            self._store.set(f"{prefix}/process/{order}", msgspec.json.encode(latest))
            is_member = number == self._seat.number + 1
            turn = self._store.add(f"{prefix}/members", 1) if is_member else 0
            self._await_roster(number, turn, deadline)
        return msgspec.json.decode(self._store.get(f"{prefix}/roster"), type=list[str])

    def _await_roster(self, number: int, turn: int, deadline: float) -> None:
        """Wait until the roster is there. A member, whose `turn` counts from 1, publishes it when it is due."""
        joined, changed_at = 0, time.monotonic()
        while not self._store.check([f"{_PREFIX}/{number}/roster"]):
            now = time.monotonic()
            are_all = self._count(number, "members") == self._seat.size  # first: all of them are in the count below
            if (count := self._count(number, "joined")) != joined:
                joined, changed_at = count, now
            is_due = turn and (are_all or now - changed_at >= turn * self._settle)
            if is_due and joined >= self._least:
                self._publish(number, joined)
            if now >= deadline:
                raise RendezvousError(
                    f"quorum {number}: {joined} processes joined within {self._timeout:g} s; it needs "
                    f"{self._least}, and one of quorum {number - 1} among them"
                )
            time.sleep(_POLL_SECONDS)

    def _publish(self, number: int, joined: int) -> None:
        """Publish the roster of the first processes that joined, unless another member does."""
        prefix = f"{_PREFIX}/{number}"
        if self._store.add(f"{prefix}/published", 1) > 1:
            return
        values = [self._store.get(f"{prefix}/process/{order + 1}") for order in range(joined)]
        processes = [msgspec.json.decode(each, type=tuple[int, int, str]) for each in values]
        processes.sort(key=lambda process: (-process[0], process[1]))  # stable: newcomers keep their order
        self._store.set(f"{prefix}/roster", msgspec.json.encode([token for _, _, token in processes[: self._most]]))

    def _count(self, number: int, key: str) -> int:
        return int(self._store.add(f"{_PREFIX}/{number}/{key}", 0))

    def _store_of(self, number: int) -> Any:
        from torch.distributed import PrefixStore

        return PrefixStore(f"{_PREFIX}/{number}/group", self._store)
