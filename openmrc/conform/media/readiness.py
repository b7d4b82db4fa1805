"""Which sockets have something? A relay polls for a little while before it sleeps, if the wait before was short.

A processor that sleeps between two packets adds its wake-up to every packet that is relayed: 30 to 60 us on a virtual
machine, as much as all else (`python -m bench.conform.relay`). So a wait looks again and again if the one before it,
however it waited, was over within `LONGEST_POLL`: in a transfer packets follow each other faster, and where nothing
comes one poll is wasted. As at an endpoint (`openmrc.live.datapath.loop.waiting`) it offers the processor to others,
and if they had it meanwhile the poll ends and the next waits sleep at once: one of them, then three, seven and so on.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Sequence

from openmrc.conform.devices.process import ProcessDevice

LONGEST_POLL = 2_000_000  # ns
LONGEST_PAUSE = 6  # crowded polls in a row make a pause of 2**6 - 1 waits at most
CROWDED = 50_000  # ns: ten looks and an offer of the processor; somebody else had it meanwhile
_YIELDS = 8  # looks between two offers
_NS = 1_000_000_000


class Readiness:
    """Waits for the sockets of a medium and for the reports of its devices."""

    def __init__(
        self, sockets: Iterable[int], devices: Sequence[ProcessDevice], longest_poll: int = LONGEST_POLL
    ) -> None:
        """Watch these descriptors; a poll ends after `longest_poll` (ns), 0: all waits sleep at once."""
        self._sockets = frozenset(sockets)
        self._devices = devices
        self._longest_poll = longest_poll
        self._was_short = True
        self._crowded = 0  # polls in a row that others cut short
        self._pause = 0  # waits that sleep at once
        self.polls = 0  # that brought something

    def now(self) -> list[int]:
        """Return the sockets that are readable."""
        return select.select(self._sockets, (), (), 0)[0]

    def wait(self, until: int, polls: bool = False) -> list[int]:
        """Wait for a socket or a report until a time (ns, monotonic) at most; return the sockets that are readable.

        `polls` allows to look again and again before sleeping.
        """
        watched = [*self._sockets, *(at for device in self._devices if (at := device.fileno()) is not None)]
        begun = time.monotonic_ns()
        ready = self._poll(watched, begun, until) if polls and self._was_short else []
        if not ready:
            ready = select.select(watched, (), (), max(until - time.monotonic_ns(), 0) / _NS)[0]
        self._was_short = bool(ready) and time.monotonic_ns() - begun < self._longest_poll
        return [each for each in ready if each in self._sockets]

    def _poll(self, watched: list[int], now: int, until: int) -> list[int]:
        """Look for a little while, unless others wanted the processor lately."""
        if self._pause:
            self._pause -= 1
            return []
        end, looks = min(now + self._longest_poll, until), 0
        while now < end:
            if ready := select.select(watched, (), (), 0)[0]:
                self.polls += 1
                self._crowded = 0
                return ready
            looks += 1
            if looks % _YIELDS == 0:
                os.sched_yield()
            before, now = now, time.monotonic_ns()
            if now - before > CROWDED:
                self._crowded = min(self._crowded + 1, LONGEST_PAUSE)
                self._pause = (1 << self._crowded) - 1
                break
        return []
