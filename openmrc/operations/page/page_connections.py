"""Connections to the page: how long one may take, and how many an address may have.

uvicorn closes a connection that idles after an answer, but waits for ever for the first request, for the rest of one,
and for a client that reads nothing; and it answers 503 above `limit_concurrency`, idle connections counted. Here a
request has a time to be complete, an answer to be read, and of the waiting connections of one address the oldest makes
way for a new one, so that nobody is kept out by connections on which nobody asks anything.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 5.0  # until a request is complete, from the connection or the answer before it
READ_SECONDS = 10.0  # that an answer may wait for its client to read
MOST_WAITING = 32  # connections of one address without a request; a browser opens six
MOST_CONNECTIONS = 512  # of all addresses

_waiting: dict[str, OrderedDict[PageConnection, None]] = {}  # by address, the oldest first


class PageConnection(H11Protocol):
    """One connection of uvicorn's, with the limits."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """Take what uvicorn passes."""
        super().__init__(*args, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; a complete one is waited for no longer."""
        super().data_received(data)
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self._end_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has arrived with this one."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_request()

    def pause_writing(self) -> None:
        """Give the client a time to read what the system's buffers cannot take."""
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _await_request(self) -> None:
        self._end_wait()
        same = _waiting.setdefault(self._address, OrderedDict())
        if len(same) >= MOST_WAITING:
            next(iter(same)).transport.abort()
        same[self] = None
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        same = _waiting.get(self._address, OrderedDict())
        same.pop(self, None)
        if not same:
            _waiting.pop(self._address, None)
