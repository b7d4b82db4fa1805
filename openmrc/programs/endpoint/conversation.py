"""The two ends of an application over a connection: check the peer, exchange messages, wait with a deadline.

Data uses the queue pair, messages the TCP channel beside it; every wait watches both. At most `MOST_UNREAD` bytes of
messages are buffered: beyond that the channel is not read, and TCP flow control stops the peer.
"""

import collections
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from openmrc.errors import MrcError, PeerError
from openmrc.live.objects.exchange import printable
from openmrc.verbs import CompletionQueue, Connection, DeadlineError, ExchangeError, WorkCompletion

Wanted = TypeVar("Wanted")
REASON_SECONDS = 0.5  # s, to read the reason of a peer that stopped
VERSION = 1  # messages that both sides of every application may send
MOST_UNREAD = 1 << 20  # bytes


class Note(msgspec.Struct, forbid_unknown_fields=True):
    """Program information that each side sends with its offer."""

    role: str
    version: int = VERSION
    plan: Any = None


class GaveUpError(PeerError):
    """The peer stopped and gave a reason."""


class Gave(msgspec.Struct, tag="gave_up", forbid_unknown_fields=True):
    """The last message of a side that stops."""

    reason: str


def check_note(note: Any, role: str, peer: str) -> Note:
    """Check the peer's note; raise ExchangeError with both values if it is another program or version."""
    try:
        theirs = msgspec.convert(note, Note)
    except msgspec.ValidationError as error:
        raise ExchangeError(f"{peer}: not '{role}' of this package: {error}") from error
    if theirs.role != role:
        raise ExchangeError(f"{peer}: program mismatch: expected '{role}', peer is '{theirs.role}'")
    if theirs.version != VERSION:
        raise ExchangeError(f"{peer}: version mismatch of '{role}': local {VERSION}, peer {theirs.version}")
    return theirs


class Conversation:
    """One connection, its messages, and one timeout for everything: seconds without progress."""

    def __init__(self, connection: Connection, text: Any, timeout: float) -> None:
        """`text` is the union of the messages that the peer may send; `Gave` is always included."""
        self.connection = connection
        self.timeout = timeout
        self._words = text | Gave
        self._inbox: collections.deque[tuple[Any, int]] = collections.deque()  # messages and their bytes
        self._unread = 0  # bytes
        self._end: PeerError | None = None  # why no further message will arrive

    @property
    def peer(self) -> str:
        return f"{self.connection.remote.name} at {self.connection.channel.peer}"

    def tell(self, message: Any) -> None:
        """Send a message; if the peer has stopped, raise its reason."""
        try:
            self.connection.tell(message)
        except ExchangeError as error:
            while self._end is None:
                self._listen(REASON_SECONDS)
            raise self._end from error

    def give_up(self, reason: str) -> None:
        """Send the reason for stopping and let the peer read it; the peer may be gone already."""
        deadline = time.monotonic() + REASON_SECONDS
        try:
            self.connection.tell(Gave(reason[:1000]))
            # Closing with unread messages would make the kernel discard ours (RFC 1122 4.2.2.13).
            while (left := deadline - time.monotonic()) > 0:
                self.connection.hear(Any, timeout=left)
        except MrcError:
            return

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Tell the peer why this side stops if the block fails, unless the peer told us."""
        try:
            yield
        except GaveUpError:
            raise
        except BaseException as error:
            self.give_up(str(error) or "interrupted")
            raise

    def hear(self, kind: type[Wanted] | tuple[type[Wanted], ...], timeout: float | None = None) -> Wanted:
        """Return the peer's next message, which must be of this kind."""
        if not self._inbox:
            self._listen(self.timeout if timeout is None else timeout)
        if not self._inbox:
            raise self._end or self.lost("sent no message")
        message, size = self._inbox.popleft()
        self._unread -= size
        if not isinstance(message, kind):
            raise self.lost(f"sent {type(message).__name__} instead of {getattr(kind, '__name__', kind)}")
        return message

    def has_message(self) -> bool:
        return bool(self._inbox)

    def wait(
        self, cq: CompletionQueue, seconds: float, most: int = 64, or_message: bool = False
    ) -> list[WorkCompletion]:
        """Wait at most this long for completions; the list is empty on timeout or, with `or_message`, a message.

        The wait is at the sockets: that costs one wake-up less than one at the completion queue, or none.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = 0.0 if or_message and self._inbox else max(deadline - time.monotonic(), 0.0)
            found = self._good(cq.wait_beside(self._channel(), left, most))
            if found or left <= 0 or (or_message and self._inbox):
                return found
            if self._end is not None:
                raise self._end
            if time.monotonic() < deadline:
                self._listen(self.timeout)

    def _channel(self) -> int:
        """Return the descriptor of the channel, -1 while it is not read."""
        return self.connection.channel.fileno() if self._unread < MOST_UNREAD else -1

    def _listen(self, seconds: float) -> None:
        """Read the peer's next message into the inbox, or record that none will follow."""
        if self._end is not None:
            return
        try:
            message, size = self.connection.channel.hear_sized(self._words, timeout=seconds)
        except (ExchangeError, DeadlineError) as error:
            self._end = PeerError(f"{error}; {self.connection.describe()}")
            return
        if isinstance(message, Gave):
            self._end = GaveUpError(f"{self.peer} gave up: {printable(message.reason)}")
            return
        self._inbox.append((message, size))
        self._unread += size

    def _good(self, completions: list[WorkCompletion]) -> list[WorkCompletion]:
        for each in completions:
            if not each.ok:
                raise self._failed(each)
        return completions

    def _failed(self, completion: WorkCompletion) -> PeerError:
        """Return the error of a failed completion; if the peer stopped, its reason, which may still be in transit."""
        self._listen(REASON_SECONDS)
        if isinstance(self._end, GaveUpError):
            return self._end
        return self.lost(f"{completion.status.name}: {completion.error}")

    def stalled(self) -> PeerError:
        """Return the error for a peer from which nothing came for too long."""
        return self.lost(f"no progress for {self.timeout:g} s")

    def lost(self, what: str) -> PeerError:
        """Return the error for a peer that violated the protocol, with the state of the paths."""
        return PeerError(f"{self.peer}: {what}; {self.connection.describe()}")
