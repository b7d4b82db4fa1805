"""Completions of a group with ranks on this host: those of its endpoint and of its local queue pairs, in one queue."""

import collections
import os
import select
from collections.abc import Callable, Iterable

from openmrc.train.links.local_queue_pair import LocalQueuePair
from openmrc.verbs import CompletionQueue, DeadlineError, WorkCompletion


class LocalCompletions:
    """Waits for both kinds of queue pairs; one thread at a time waits."""

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
