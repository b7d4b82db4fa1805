"""The endpoints of this process: groups on the same planes share one, as far as its queue pairs go."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from openmrc.train.devices import choose_planes, open_context
from openmrc.verbs import Context

_LEAST = 16  # queue pairs of an endpoint
_GROUPS = 4  # as large as the first, that one endpoint has room for


@dataclass
class _Endpoint:
    context: Context
    planes: list[str]
    free: int  # queue pairs
    users: int = 0


class Endpoints:
    """Opens them and closes them again when nobody uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[_Endpoint] = []

    def take(self, planes: Sequence[str] | str | None, queue_pairs: int, faults: str | None) -> Context:
        """Return an endpoint on these planes with so many queue pairs to spare; `faults` impair one that is opened."""
        chosen = choose_planes(planes)
        with self._lock:
            endpoint = next((each for each in self._open if each.planes == chosen and each.free >= queue_pairs), None)
            if endpoint is None:
                room = max(_GROUPS * queue_pairs, _LEAST)
                endpoint = _Endpoint(open_context(planes, room, faults), chosen, room)
                self._open.append(endpoint)
            endpoint.free -= queue_pairs
            endpoint.users += 1
            return endpoint.context

    def give_back(self, context: Context, queue_pairs: int) -> None:
        """Say that a group has left."""
        with self._lock:
            endpoint = next(each for each in self._open if each.context is context)
            endpoint.free += queue_pairs
            endpoint.users -= 1
            if endpoint.users:
                return
            self._open.remove(endpoint)
        endpoint.context.close()


ENDPOINTS = Endpoints()
