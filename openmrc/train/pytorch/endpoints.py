"""The endpoints of this process: groups on the same planes share one while it has free queue pairs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from openmrc.train.links.devices import choose_planes, open_context
from openmrc.verbs import Context

_MIN_QUEUE_PAIRS = 16  # of an endpoint
_GROUPS_PER_ENDPOINT = 4  # groups of the size of the first


@dataclass
class _Endpoint:
    context: Context
    planes: list[str]
    free: int  # queue pairs
    users: int = 0


class Endpoints:
    """Opens endpoints, and closes them when their last group has left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[_Endpoint] = []

    def take(self, planes: Sequence[str] | str | None, queue_pairs: int, faults: str | None) -> Context:
        """Reserve queue pairs on an endpoint with these planes; `faults` applies only to an endpoint opened here."""
        chosen = choose_planes(planes)
        with self._lock:
            endpoint = next((each for each in self._open if each.planes == chosen and each.free >= queue_pairs), None)
            if endpoint is None:
                room = max(_GROUPS_PER_ENDPOINT * queue_pairs, _MIN_QUEUE_PAIRS)
                endpoint = _Endpoint(open_context(planes, room, faults), chosen, room)
                self._open.append(endpoint)
            endpoint.free -= queue_pairs
            endpoint.users += 1
            return endpoint.context

    def give_back(self, context: Context, queue_pairs: int) -> None:
        """Release the queue pairs of a group that has left."""
        with self._lock:
            endpoint = next(each for each in self._open if each.context is context)
            endpoint.free += queue_pairs
            endpoint.users -= 1
            if endpoint.users:
                return
            self._open.remove(endpoint)
        endpoint.context.close()


ENDPOINTS = Endpoints()
