"""When planes were down or silent during a run, for the flight recorder."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from openmrc.verbs import PlaneCounters

_MOST = 1000  # events kept; a plane that flaps must not fill the memory


class PlaneEvent(msgspec.Struct):
    """One time in which a plane carried no data."""

    plane: int
    state: str  # down: its port; silent: what was sent to some peer was lost
    began_at: float  # since 1970, when it was noticed
    ended_at: float  # 0: not yet
    lost: int  # packets that the endpoint lost on it meanwhile


class PlaneLog:
    """Notices changes between calls of `watch`."""

    def __init__(self) -> None:
        self.events: list[PlaneEvent] = []
        self._open: dict[tuple[int, str], PlaneEvent] = {}
        self._seen: dict[int, PlaneCounters] = {}

    def watch(self, planes: Iterable[PlaneCounters], now: float) -> None:
        """Compare with the previous call; `now` since 1970."""
        for plane in planes:
            before = self._seen.get(plane.plane, plane)
            self._follow(plane, before, "down", not plane.up, False, now)
            self._follow(plane, before, "silent", plane.silent, plane.silences > before.silences, now)
            self._seen[plane.plane] = plane

    def _follow(
        self, plane: PlaneCounters, before: PlaneCounters, state: str, is_out: bool, has_been: bool, now: float
    ) -> None:
        key = plane.plane, state
        event = self._open.get(key)
        if event is None and (is_out or has_been) and len(self.events) < _MOST:
            event = self._open[key] = PlaneEvent(plane.plane, state, now, 0.0, 0)
            self.events.append(event)
        if event is not None:
            event.lost += plane.lost - before.lost
            if not is_out:
                event.ended_at = now
                del self._open[key]
