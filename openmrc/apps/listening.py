"""Waiting for peers: as long as it takes, in steps that a signal can end."""

from __future__ import annotations

import os
import select
import time

from openmrc.verbs import DeadlineError, Listener

ESTABLISH_SECONDS = 10.0  # for a peer that has connected to become ready


def await_peer(listener: Listener, wait: float | None = None) -> None:
    """Return when a peer is at the door; DeadlineError after `wait` seconds, if given."""
    deadline = None if wait is None else time.monotonic() + wait
    poller = select.poll()
    poller.register(listener.fileno(), select.POLLIN)
    while True:
        left = 3600.0 if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise DeadlineError(f"nobody connected to TCP port {listener.port} within {wait:g} s")
        if poller.poll(left * 1000):
            return


def announce_port(listener: Listener, descriptor: int | None) -> None:
    """Tell the process that started this one which TCP port listens, on a descriptor it gave."""
    if descriptor is not None:
        os.write(descriptor, f"{listener.port}\n".encode())
        os.close(descriptor)
