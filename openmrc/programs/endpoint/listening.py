"""Wait for the right peer, and report those that are rejected."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Self

from openmrc.errors import PeerError
from openmrc.programs.endpoint.conversation import Conversation, Note, check_note
from openmrc.verbs import Connection, ExchangeError, Listener

ESTABLISH_SECONDS = 10.0  # s for a connected peer to become ready
REPORT_SECONDS = 1.0  # s between two reports of rejected peers: a port scan must not fill a log
REASONS_HELD = 16  # different reasons in one report; texts of strangers must not fill the memory either
OTHER_REASONS = "peers for other reasons"


def _later(seconds: float, call: Callable[[], None]) -> None:
    """Call a function from a thread of its own, unless the process ends before."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


class Refusals:
    """Reports rejected peers: the first reason at once, those of the next second together, each with its count.

    Nothing is lost: what is held back is reported a second later, or at the end of the `with` block. Called from the
    listener's thread and from the command's. `clock` returns seconds; `later` calls a function after some seconds.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], None] = _later,
    ) -> None:
        self._report = report
        self._clock = clock
        self._later = later
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._quiet_until = -inf
        self._is_flush_due = False

    def __call__(self, why: str) -> None:
        """Report one rejected peer, now or with the next lines."""
        with self._lock:
            self._held[why if why in self._held or len(self._held) < REASONS_HELD else OTHER_REASONS] += 1
            wait = self._quiet_until - self._clock()
            if wait <= 0:
                self._flush()
            elif not self._is_flush_due:
                self._is_flush_due = True
                self._later(wait, self.flush)

    def flush(self) -> None:
        """Report what is held back."""
        with self._lock:
            self._is_flush_due = False
            self._flush()

    def _flush(self) -> None:
        for why, count in self._held.items():
            self._report(f"rejected {why}" + (f" ({count} times)" if count > 1 else ""))
        if self._held:
            self._quiet_until = self._clock() + REPORT_SECONDS
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


def next_peer(
    accept: Callable[[float], Connection], role: str, wait: float, refusals: Refusals
) -> tuple[Connection, Note]:
    """Return the next connection whose program is `role` and that offers memory, with its note.

    `accept` takes the seconds that are left of `wait`, after which it raises DeadlineError. Other peers get the reason
    for the rejection, and the wait continues.
    """
    deadline = time.monotonic() + wait
    while True:
        try:
            connection = accept(deadline - time.monotonic())
        except ExchangeError as error:
            refusals(str(error))
            continue
        try:
            note = check_note(connection.remote.note, role, connection.channel.peer)
            connection.remote.region()
            return connection, note
        except PeerError as error:
            refusals(str(error))
            turn_away(connection, str(error))
        except BaseException:
            connection.close()
            raise


def turn_away(connection: Connection, why: str) -> None:
    """Tell a peer why it is rejected, and close."""
    with connection:
        Conversation(connection, str, ESTABLISH_SECONDS).give_up(why)


def announce_port(listener: Listener, descriptor: int | None) -> None:
    """Write the TCP port to a descriptor on which the parent process waits."""
    if descriptor is not None:
        os.write(descriptor, f"{listener.port}\n".encode())
        os.close(descriptor)
