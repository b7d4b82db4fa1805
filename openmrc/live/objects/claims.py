"""Requests that a caller waits for by number, on a completion queue that others may read too.

The completion of a claimed request is put aside for its caller by whoever reads it, or dropped if the caller has given
up; any other is kept for `CompletionQueue.poll`. Not thread-safe: the completion queue's lock is held.
"""

import collections
import secrets

from openmrc.live.attributes import WorkCompletion


class Claims:
    """The claimed requests of one completion queue, and completions that were read before their turn."""

    def __init__(self) -> None:
        # Above every address and index, and random: a program's own `wr_id` will not be among them.
        self._first = self._next = 1 << 63 | secrets.randbits(62)
        self._awaited: dict[int, WorkCompletion | None] = {}
        self.kept: collections.deque[WorkCompletion] = collections.deque()  # for `poll`

    def __len__(self) -> int:
        """Return how many requests are claimed now."""
        return len(self._awaited)

    def draw(self) -> int:
        """Claim a request that is not posted yet; return its `wr_id`."""
        number, self._next = self._next, self._next + 1
        self._awaited[number] = None
        return number

    def unclaimed(self, taken: list[WorkCompletion]) -> list[WorkCompletion]:
        """Return the completions that nobody has claimed; put aside or drop the others."""
        if self._first == self._next:
            return taken
        others = []
        for completion in taken:
            number = completion.wr_id
            if number in self._awaited:
                self._awaited[number] = completion
            elif not self._first <= number < self._next:
                others.append(completion)
        return others

    def completion(self, number: int) -> WorkCompletion | None:
        """Return the completion of a claimed request, if it has come."""
        return self._awaited[number]

    def end(self, number: int) -> None:
        """End a claim; a completion of the request that is still to come will be dropped."""
        self._awaited.pop(number, None)
