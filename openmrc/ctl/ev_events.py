"""EV events for controllers: a queue that cannot overrun (`ctl.profiles.event_ring`), with a count of what was dropped.

A queue that nobody reads for `FORGOTTEN_SECONDS` is removed.
"""

import threading
import time

import msgspec

from openmrc.ctl.profiles import event_ring
from openmrc.ctl.profiles.event_ring import RingColumn
from openmrc.errors import InvalidArgumentError, NotFoundError, TooBigError

MOST_QUEUES = 16
MOST_EVENTS = 1 << 16
FORGOTTEN_SECONDS = 120.0


class EvStateEvent(msgspec.Struct, kw_only=True):
    """An EV that became GOOD or ASSUMED_BAD (`mrc_ctl_ev_event`)."""

    profile: int  # 0: the endpoint's own
    ev: str  # 32 bytes in hexadecimal, without trailing zeros
    port: int
    state: str
    drop_count: int = 0  # events before this one that were dropped
    qpn: int = 0  # of the queue pair that found it; ours
    value: int = 0  # as `evs` and denials name it; ours


class EvEventQueue:
    def __init__(self, capacity: int) -> None:
        self._ring = event_ring.new_ring(capacity)
        self._events: dict[int, EvStateEvent] = {}  # by place in the ring
        self.read_at = time.monotonic()  # s

    def push(self, event: EvStateEvent) -> None:
        """Append an event; the oldest goes if there is no room."""
        self._events[event_ring.push(self._ring)] = event

    def lose(self, count: int) -> None:
        """Count events that were lost before they came here."""
        event_ring.lose(self._ring, count)

    def take(self, most: int) -> list[EvStateEvent]:
        """Remove and return the oldest events."""
        self.read_at = time.monotonic()
        taken: list[EvStateEvent] = []
        while len(taken) < most and (place := event_ring.take(self._ring)) >= 0:
            dropped = int(self._ring[RingColumn.REPORTED])
            taken.append(msgspec.structs.replace(self._events.pop(place), drop_count=dropped))
        return taken

    def __len__(self) -> int:
        return event_ring.held(self._ring)


class EvEventQueues:
    def __init__(self) -> None:
        self._queues: dict[int, EvEventQueue] = {}
        self._made = 0
        self._news = threading.Condition()
        self._is_closed = False

    def create(self, capacity: int) -> int:
        """Return the number of a new queue; EINVAL, E2BIG if there are too many."""
        if not 1 <= capacity <= MOST_EVENTS:
            raise InvalidArgumentError(f"capacity: {capacity} is not in 1..{MOST_EVENTS}")
        with self._news:
            self._forget(time.monotonic())
            if len(self._queues) >= MOST_QUEUES:
                raise TooBigError(f"event queues: all {MOST_QUEUES} are in use", MOST_QUEUES)
            self._made += 1
            self._queues[self._made] = EvEventQueue(capacity)
            return self._made

    def destroy(self, number: int) -> None:
        """Remove a queue; ENOENT if there is none of this number."""
        with self._news:
            if self._queues.pop(number, None) is None:
                raise NotFoundError(f"event queue: there is no {number}")

    def push(self, event: EvStateEvent) -> None:
        with self._news:
            for queue in self._queues.values():
                queue.push(event)
            self._news.notify_all()

    def lose(self, count: int) -> None:
        """Count events in every queue that were lost before they came here."""
        with self._news:
            for queue in self._queues.values():
                queue.lose(count)

    def poll(self, number: int, most: int, seconds: float) -> list[EvStateEvent]:
        """Return at most `most` events, after waiting up to `seconds` for the first; ENOENT."""
        with self._news:
            found = self._queues.get(number)
            if found is None:
                raise NotFoundError(f"event queue: there is no {number}; unread for long it is removed")
            self._news.wait_for(lambda: len(found) > 0 or self._is_closed, seconds)
            return found.take(most)

    def close(self) -> None:
        with self._news:
            self._is_closed = True
            self._news.notify_all()

    def _forget(self, now: float) -> None:
        for number, queue in list(self._queues.items()):
            if now - queue.read_at > FORGOTTEN_SECONDS:
                del self._queues[number]
