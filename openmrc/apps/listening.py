"""Wait for the right peer without a limit, in steps that a signal can interrupt."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from openmrc.apps.access import AccessPolicy
from openmrc.apps.conversation import Conversation, Note, check_note
from openmrc.errors import PeerError
from openmrc.verbs import Connection, Context, DeadlineError, ExchangeError, Listener

ESTABLISH_SECONDS = 10.0  # s for a connected peer to become ready
REPORT_SECONDS = 1.0  # s between two lines about rejected peers: a port scan must not fill a log


class Refusals:
    """Reports rejected peers, at most one line per second."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._quiet_until = 0.0
        self._suppressed = 0

    def __call__(self, why: str) -> None:
        """Report one rejected peer."""
        now = time.monotonic()
        if now < self._quiet_until:
            self._suppressed += 1
            return
        more = f" (and {self._suppressed} more before)" if self._suppressed else ""
        self._quiet_until, self._suppressed = now + REPORT_SECONDS, 0
        self._report(f"rejected {why}{more}")


def open_listener(context: Context, port: int, access: AccessPolicy, refusals: Refusals) -> Listener:
    """Listen with the given options."""
    return Listener(context, access.hosts, port, token=access.token, on_refusal=refusals)


def await_peer(listener: Listener, wait: float | None = None) -> None:
    """Return when a peer waits to be accepted; DeadlineError after `wait` seconds, if given."""
    deadline = None if wait is None else time.monotonic() + wait
    poller = select.poll()
    poller.register(listener.fileno(), select.POLLIN)
    while True:
        left = 3600.0 if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise DeadlineError(f"no peer connected to TCP port {listener.port} within {wait:g} s")
        if poller.poll(left * 1000):
            return


def next_peer(
    listener: Listener, accept: Callable[[], Connection], role: str, wait: float | None, refusals: Refusals
) -> tuple[Connection, Note]:
    """Return the next connection whose program is `role` and that offers memory, with its note.

    Other peers get the reason for the rejection, and the wait continues; DeadlineError after `wait` seconds, if given.
    """
    deadline = None if wait is None else time.monotonic() + wait
    while True:
        await_peer(listener, None if deadline is None else max(deadline - time.monotonic(), 0.0))
        try:
            connection = accept()
        except (ExchangeError, DeadlineError) as error:
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
