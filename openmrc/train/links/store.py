"""Key-value store for the rendezvous: the interface that a group requires, that of torch's stores, and one over TCP."""

import math
import threading
import time
from typing import Any, Protocol

import msgspec

from openmrc.live.objects.exchange import ControlChannel, dial
from openmrc.live.objects.handshake import token_bytes
from openmrc.live.objects.server import RendezvousServer
from openmrc.train.errors import RendezvousError
from openmrc.train.links.liveness import token_text
from openmrc.verbs import ClosedError, DeadlineError, ExchangeError

_MOST_KEYS = 100_000


class Store(Protocol):
    """Interface of a store that a group can use."""

    def set(self, key: str, value: Any) -> None:
        """Set a key to bytes or text."""

    def get(self, key: str) -> bytes:
        """Return the value of a key; wait until it is set."""

    def add(self, key: str, amount: int) -> int: ...

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are set; does not wait."""


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    do: str  # set, get, add, check
    keys: list[str]
    value: bytes = b""
    amount: int = 0
    timeout: float = 0.0


class _Hello(msgspec.Struct, forbid_unknown_fields=True):
    """The first message of a client, which the server of the exchange expects."""

    store: bool = True


class _Response(msgspec.Struct, forbid_unknown_fields=True):
    value: bytes = b""
    amount: int = 0
    missing: list[str] = []


class TcpStore:
    """A store that one process serves; all processes connect to it."""

    def __init__(self, host: str, port: int, *, serve: bool, timeout: float = 60.0) -> None:
        """Connect to `host` and `port`; with `serve` start the server there first. `timeout` in seconds.

        With port 0 the server takes a free port, which `port` gives. If the environment variable MRC_TOKEN is set, its
        token must be the same at all ranks.
        """
        token, host = token_text(), host or "127.0.0.1"
        self.timeout = timeout
        self._server = _StoreServer(host, port, token) if serve else None
        self.port = self._server.port if self._server is not None else port
        try:
            self._channel = dial(host, self.port, time.monotonic() + timeout, token)
            self._channel.tell(_Hello())
        except BaseException:
            self.close()
            raise
        self._lock = threading.Lock()

    def set(self, key: str, value: bytes | str) -> None:
        self._request(_Request("set", [key], value.encode() if isinstance(value, str) else value))

    def get(self, key: str) -> bytes:
        """Return the value of a key; RendezvousError if it is not set within the store's timeout."""
        return self._request(_Request("get", [key], timeout=self.timeout)).value

    def add(self, key: str, amount: int) -> int:
        return self._request(_Request("add", [key], amount=amount)).amount

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are set."""
        return not self._exchange(_Request("check", keys)).missing

    def close(self) -> None:
        """Disconnect, and stop serving."""
        if hasattr(self, "_channel"):
            self._channel.close()
        if self._server is not None:
            self._server.close()

    def _exchange(self, request: _Request) -> _Response:
        with self._lock:
            self._channel.tell(request)
            response: _Response = self._channel.hear(_Response, timeout=request.timeout + 10.0)
        return response

    def _request(self, request: _Request) -> _Response:
        response = self._exchange(request)
        if response.missing:
            raise RendezvousError(f"store: not set within {request.timeout:g} s: {', '.join(response.missing)}")
        return response


class _StoreServer:
    """The server, which stores the values."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._server = RendezvousServer([host], port)
        self._server.start(token_bytes(token))
        self.port = self._server.port
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._is_open = True
        self._channels: list[ControlChannel] = []
        threading.Thread(target=self._accept, name="openmrc store", daemon=True).start()

    def close(self) -> None:
        self._is_open = False
        self._server.close()
        for channel in self._channels:
            channel.close()
        with self._changed:
            self._changed.notify_all()

    def _accept(self) -> None:
        while self._is_open:
            try:
                channel = self._server.accept(time.monotonic() + 1.0).channel
            except DeadlineError:
                continue
            except ExchangeError:
                continue
            except ClosedError:
                return
            self._channels.append(channel)
            threading.Thread(target=self._serve, args=(channel,), name="openmrc store client", daemon=True).start()

    def _serve(self, channel: ControlChannel) -> None:
        try:
            while self._is_open:
                channel.tell(self._handle(channel.hear(_Request, timeout=math.inf)))
        except (ExchangeError, ClosedError, DeadlineError, OSError):
            channel.close()

    def _handle(self, request: _Request) -> _Response:
        with self._changed:
            if request.do in ("set", "add") and len(self._values) < _MOST_KEYS:
                return self._change(request)
            deadline = time.monotonic() + request.timeout
            while missing := [key for key in request.keys if key not in self._values]:
                left = deadline - time.monotonic()
                if left <= 0 or not self._is_open:
                    return _Response(missing=missing)
                self._changed.wait(min(left, 1.0))
            return _Response(value=self._values[request.keys[0]] if request.keys else b"")

    def _change(self, request: _Request) -> _Response:
        key = request.keys[0]
        value, amount = request.value, 0
        if request.do == "add":
            amount = int(self._values.get(key, b"0")) + request.amount
            value = str(amount).encode()
        self._values[key] = value
        self._changed.notify_all()
        return _Response(amount=amount)
