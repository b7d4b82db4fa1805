"""The endpoint of a group: links to the other ranks, the memory that they write, completions of both transports."""

import collections
import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from openmrc.train.buffers import Memory
from openmrc.train.links import mesh
from openmrc.train.links.introduction import LocalPair
from openmrc.train.links.liveness import Liveness
from openmrc.train.links.local_queue_pair import BASE, LocalQueuePair
from openmrc.train.links.mailbox import RankLink
from openmrc.train.links.store import Store
from openmrc.train.registrations import LocalRegions, Registrations
from openmrc.verbs import BusyError, CompletionQueue, Context, DeadlineError, QpState, WorkCompletion


@dataclass(frozen=True)
class GroupTerms:
    """One rank's place in a group, and how it connects to the others."""

    store: Store
    rank: int
    size: int
    name: str  # keys in the store begin with mrc/`name`
    timeout: float  # s, of the rendezvous and of each collective
    timers: mesh.Timers
    shares_memory: bool  # with ranks of this host

    def meeting(self) -> mesh.Meeting:
        """Return the rendezvous, which begins now."""
        return mesh.Meeting(self.store, f"mrc/{self.name}", self.rank, self.size, time.monotonic() + self.timeout)


class LocalCompletions:
    """Waits for completions of the endpoint and of local queue pairs, in one queue; one thread at a time waits."""

    def __init__(self, network: CompletionQueue | None, on_end: Callable[[int], None]) -> None:
        """`network`: None if all ranks are on this host. `on_end` is called with a rank whose process has ended."""
        self._network = network
        self._on_end = on_end
        self._done: collections.deque[WorkCompletion] = collections.deque()
        self._queue_pairs: dict[int, LocalQueuePair] = {}  # by descriptor
        self._poller = select.poll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller.register(self._wakeup, select.POLLIN)
        self._is_asleep = False
        if network is not None:
            self._poller.register(network.fileno(), select.POLLIN)

    def complete(self, completion: WorkCompletion) -> None:
        """Add a completion, from any thread."""
        self._done.append(completion)
        if self._is_asleep:
            os.eventfd_write(self._wakeup, 1)

    def watch(self, queue_pairs: Iterable[LocalQueuePair]) -> None:
        """Receive from these queue pairs from now on."""
        for each in queue_pairs:
            self._queue_pairs[each.fileno()] = each
            self._poller.register(each.fileno(), select.POLLIN)

    def wait(self, timeout: float, n: int = 16) -> list[WorkCompletion]:
        """Return about `n` completions; sleep until there is one. DeadlineError after `timeout` seconds."""
        # Without a network the poll that sleeps finds what has arrived as well, which saves a system call.
        taken = self._take(n) if self._done or self._network is not None else []
        if taken:
            return taken
        self._is_asleep = True
        try:
            if self._network is not None:
                self._network.notify()
                taken = self._network.poll(n)  # what came before is not announced
            if not self._done and not taken:
                self._receive(timeout)
        finally:
            self._is_asleep = False
        taken += self._take(n)
        if not taken:
            raise DeadlineError(f"no completion within {timeout:g} s")
        return taken

    def close(self) -> None:
        """Close the descriptor; no thread waits any more."""
        os.close(self._wakeup)

    def _take(self, n: int) -> list[WorkCompletion]:
        if not self._done:
            self._receive(0)
        taken = [self._done.popleft() for _ in range(min(n, len(self._done)))]
        if self._network is not None:
            taken += self._network.poll(n)
        return taken

    def _receive(self, timeout: float) -> None:
        """Process what arrives at the sockets within `timeout` seconds."""
        for descriptor, _ in self._poller.poll(timeout * 1000):
            queue_pair = self._queue_pairs.get(descriptor)
            if queue_pair is not None:
                if not queue_pair.receive():
                    self._poller.unregister(descriptor)
                    del self._queue_pairs[descriptor]
                    self._on_end(queue_pair.rank)
            elif descriptor == self._wakeup:
                os.eventfd_read(self._wakeup)


class GroupEndpoint:
    def __init__(self, terms: GroupTerms, context: Context, owns_context: bool) -> None:
        """Connect to the other ranks over an endpoint, which is closed with the group if that owns it."""
        self._context, self._owns_context = context, owns_context
        self._pd = context.alloc_pd()
        self._cq = context.create_cq(4096)
        self.memory: Memory = Registrations(self._pd)
        self.links: dict[int, RankLink] = {}
        self.liveness = Liveness({})
        self._of_host: LocalCompletions | None = None  # of ranks of this host as well
        try:
            endpoint = mesh.MeshEndpoint(context, self._pd, self._cq)
            connected = mesh.connect(endpoint, terms.meeting(), terms.timers, terms.shares_memory)
        except BaseException:
            self.free()
            raise
        self.links, self.liveness = connected.links, connected.liveness
        self._attach(connected.local)
        self._by_qp = {link.qp.qpn: link for link in self.links.values()}

    def _attach(self, pairs: Sequence[LocalPair]) -> None:
        """Reach ranks of this host through shared memory."""
        if not pairs:
            return
        is_only = len(pairs) == len(self.links)
        if is_only:
            self.memory = LocalRegions()  # nothing needs to be registered with the endpoint
        network = None if is_only else self._cq
        self._of_host = LocalCompletions(network, lambda rank: self.liveness.note_end(rank, time.monotonic()))
        queue_pairs = [pair.queue_pair(self.memory, self._of_host.complete) for pair in pairs]
        for each in queue_pairs:
            self.links[each.rank].use_shared_memory(each, each.stage, BASE)
        self._of_host.watch(queue_pairs)

    @property
    def completions(self) -> LocalCompletions | CompletionQueue:
        return self._of_host or self._cq

    @property
    def local_ranks(self) -> list[int]:
        """The ranks that are reached through shared memory."""
        return sorted(rank for rank, link in self.links.items() if link.is_local)

    def link_of(self, qp_num: int) -> RankLink | None:
        """Return the link with a queue pair; None if it is not of this group."""
        return self._by_qp.get(qp_num)

    def has_backlog(self) -> bool:
        """Whether frames wait for room at a peer."""
        return any(link.has_backlog for link in self.links.values())

    def send_backlogs(self) -> None:
        """Send queued frames while the peers have room."""
        for link in self.links.values():
            if link.has_backlog:
                link.send_backlog()

    def return_credits(self) -> None:
        """Tell peers what was consumed, where no other message did."""
        for link in self.links.values():
            link.return_credits()

    def owes(self) -> bool:
        """Whether ranks that have not left, and whose process has not ended, may still lack what was posted."""
        now = time.monotonic()
        return any(
            not link.bye_at and link.qp.state == QpState.RTS and link.qp.outstanding()
            for rank, link in self.links.items()
            if not self.liveness.is_gone(rank, now)
        )

    def free(self) -> None:
        """Free all resources; later packets are ignored."""
        for link in self.links.values():
            link.free()
        self.liveness.close()
        if self._of_host is not None:
            self._of_host.close()
        if self._owns_context:
            self._context.close()
        else:
            self.memory.close()
            self._cq.destroy()
            with suppress(BusyError):  # a write that has not completed still reads from a region
                self._pd.dealloc()
