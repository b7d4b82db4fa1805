"""Endpoint requests of controllers: sent from a NIC's queue of control packets, answers as events of the engine."""

import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from openmrc.ctl.endpoint_requests import PROBE, STATUS, EpRequest, EpResponse, check_batch
from openmrc.engine.paths import ports
from openmrc.engine.state.tables import Event
from openmrc.errors import BusyError, InvalidArgumentError, NotFoundError
from openmrc.live.ctl.queue_pair_rows import QueuePairRows
from openmrc.live.host.addresses import host_of
from openmrc.live.host.runtime import EndpointRuntime

_NUMBERS = ports.CHECK_PROBE_ID - ports.CONTROLLER_PROBE_ID
_PROBES_ONLY = -1


class NicRequests:
    """The requests that are out."""

    def __init__(self, rows: QueuePairRows, runtime: EndpointRuntime) -> None:
        self._rows = rows
        self._runtime = runtime
        # By number on the wire: the request's own, and where the answer goes.
        self._waiting: dict[int, tuple[int, SimpleQueue[EpResponse]]] = {}
        self._next = 0
        self._lock = threading.Lock()

    def send_wait(self, kind: str, requests: Sequence[EpRequest], seconds: float) -> list[EpResponse]:
        """Send requests of one kind and return the answers that come in time, in the order of arrival.

        EINVAL, E2BIG; ENOENT: no such peer is connected; EBUSY: more are out, or queued, than there is room for.
        """
        if kind not in (PROBE, STATUS):
            raise InvalidArgumentError(f"kind: {kind!r} is not one of {PROBE}, {STATUS}")
        check_batch(requests, seconds)
        deadline = time.monotonic() + seconds
        addressed = [(request, self._peer(request, index)) for index, request in enumerate(requests)]
        answers: SimpleQueue[EpResponse] = SimpleQueue()
        found: list[EpResponse] = []
        try:
            with self._lock, self._runtime.locked():
                for request, peer in addressed:
                    self._send(kind, request, peer, self._numbered(request.req_id, answers))
            while len(found) < len(requests):
                found.append(answers.get(timeout=max(deadline - time.monotonic(), 0)))
        except Empty:
            pass  # the time is over
        finally:
            with self._lock:
                self._waiting = {number: each for number, each in self._waiting.items() if each[1] is not answers}
        return found

    def on_response(self, record: Event) -> None:
        """Hand an answer to whoever waits for it; one that is not expected, or comes twice, is ignored."""
        with self._lock:
            req_id, answers = self._waiting.pop(int(record.state), (0, None))
        if answers is not None:
            answers.put(EpResponse(req_id=req_id, port=int(record.port) + 1, rtt=int(record.cause)))

    def _send(self, kind: str, request: EpRequest, peer: int, number: int) -> None:
        mask = _PROBES_ONLY if kind == PROBE else request.status_mask
        if ports.ask(self._runtime.engine, peer, request.port - 1, request.ev, number, mask) == 0:
            raise BusyError("requests: the endpoint's queue of control packets is full")

    def _numbered(self, req_id: int, answers: SimpleQueue[EpResponse]) -> int:
        for _ in range(_NUMBERS):
            number = ports.CONTROLLER_PROBE_ID + self._next % _NUMBERS
            self._next += 1
            if number not in self._waiting:
                self._waiting[number] = req_id, answers
                return number
        raise BusyError(f"requests: all {_NUMBERS} numbers are in use")

    def _peer(self, request: EpRequest, index: int) -> int:
        """Return the row of the peer that a request names, after checking the rest of it."""
        count = len(self._runtime.sockets.addresses)
        if not 1 <= request.port <= count:
            raise InvalidArgumentError(f"requests[{index}].port: {request.port} is not in 1..{count}")
        if request.ev not in self._runtime.sockets.evs(request.port - 1):
            raise InvalidArgumentError(f"requests[{index}].ev: {request.ev:#x} is not carried on port {request.port}")
        if request.status_mask & ~sum(1 << port for port in range(1, count + 1)):
            raise InvalidArgumentError(f"requests[{index}].status_mask: {request.status_mask:#x} names unknown ports")
        for row in self._rows.used():
            address = self._rows.peer(row)
            if address is not None and host_of(address.planes[request.port - 1]) == request.peer:
                return int(self._runtime.engine.qps[row].peer)
        raise NotFoundError(f"requests[{index}].peer: {request.peer!r} is no connected peer on port {request.port}")
