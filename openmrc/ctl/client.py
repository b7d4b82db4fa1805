"""Calls to an endpoint of this host from another process, or the same."""

import functools
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_type_hints

import msgspec

from openmrc.ctl.channel import Channel
from openmrc.ctl.errors import error_of
from openmrc.ctl.folder import check_private, endpoints, folder_of
from openmrc.ctl.messages import (
    MOST_ANSWER,
    NEWEST,
    OLDEST,
    CtlAnswer,
    CtlCall,
    CtlFailure,
    CtlGreeting,
    CtlMessage,
    common_version,
    packed,
)
from openmrc.errors import ConfigError, PeerError, WireError
from openmrc.version import __version__

P = ParamSpec("P")
R = TypeVar("R")
CALL_SECONDS = 10.0
RETRY_SECONDS = 0.02


class CtlClient:
    """A connection to one endpoint; close it, or use it as a context manager. One call at a time."""

    def __init__(self, path: Path, seconds: float = CALL_SECONDS) -> None:
        """Connect; PeerError: nobody serves this socket, or it speaks other versions. `seconds` bounds each wait."""
        self.path = path
        self._seconds = seconds
        self._number = 0
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._channel = Channel(sock)
        try:
            _connect(sock, path, seconds)
            theirs = self._exchange(CtlGreeting(oldest=OLDEST, newest=NEWEST, release=__version__), seconds)
            if not isinstance(theirs, CtlGreeting):
                raise PeerError(f"{path}: answered a greeting by {type(theirs).__name__}")
            self.version = common_version(theirs)
        except (OSError, WireError) as error:
            self.close()
            raise PeerError(f"{path}: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def endpoint(self) -> str:
        return self.path.stem

    def call(self, operation: Callable[Concatenate[Any, P], R], /, *args: P.args, **request: P.kwargs) -> R:
        """Have the endpoint carry out one of the server's operations; CallError as it raised it, PeerError: no answer.

        `operation` is a function of a device and keyword arguments, such as `endpoint_ops.ports`.
        """
        return self.call_within(0.0, operation, *args, **request)

    def call_within(
        self, wait: float, operation: Callable[Concatenate[Any, P], R], /, *_: P.args, **request: P.kwargs
    ) -> R:
        """Call as `call` does; the operation itself may take `wait` seconds, beyond those of the connection."""
        name = operation.__name__
        self._number += 1
        try:
            call = CtlCall(number=self._number, operation=name, body=packed(request))
            answer = self._exchange(call, self._seconds + wait)
        except (OSError, WireError) as error:
            self.close()
            raise PeerError(f"{self.path}: {name}: {error}") from error
        if not isinstance(answer, CtlAnswer) or answer.number != self._number:
            self.close()
            raise PeerError(f"{self.path}: {name}: answered by something else")
        try:
            reply: R = msgspec.msgpack.decode(answer.body, type=_reply_of(operation))
            return reply
        except msgspec.MsgspecError as error:
            raise PeerError(f"{self.path}: {name}: {error}") from error

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, what: CtlMessage, seconds: float) -> CtlMessage:
        """Send a message and return the answer to it; where sending fails, the reason may have come before."""
        try:
            self._channel.send(what, self._seconds)
        except BrokenPipeError:
            return self._receive(self._seconds)
        return self._receive(seconds)

    def _receive(self, seconds: float) -> CtlMessage:
        try:
            found = self._channel.receive(MOST_ANSWER, seconds, seconds)
        except EOFError:
            raise PeerError(f"{self.path}: the endpoint closed the connection") from None
        except TimeoutError:
            raise PeerError(f"{self.path}: no answer within {seconds:g} s") from None
        if isinstance(found, CtlFailure):
            raise error_of(found)
        return found


@functools.cache
def _reply_of(operation: Callable[..., Any]) -> Any:
    return get_type_hints(operation)["return"]


def _connect(sock: socket.socket, path: Path, seconds: float) -> None:
    """Connect within this time; while the backlog is full, the kernel refuses at once."""
    deadline = time.monotonic() + seconds
    sock.settimeout(seconds)
    while True:
        try:
            sock.connect(str(path))
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
        else:
            return


def local_endpoints(asked: str | None = None) -> list[Path]:
    """Return the sockets of the endpoints of this user on this host; `asked` is as `MRC_CTL`."""
    return list(endpoints(folder_of(asked)))


@contextmanager
def endpoint(name: str = "", asked: str | None = None) -> Iterator[CtlClient]:
    """Connect to the endpoint whose name begins with `name`, the only one if empty; ConfigError lists all."""
    folder = folder_of(asked)
    found = [path for path in endpoints(folder) if path.stem.startswith(name)]
    exact = [path for path in found if path.stem == name]
    chosen = exact or found
    if len(chosen) != 1:
        known = ", ".join(path.stem for path in endpoints(folder)) or "none; start programs with MRC_CTL=on"
        wish = f"endpoint {name!r}: {'several' if chosen else 'none'} of this name" if name else "give an endpoint"
        raise ConfigError(f"{wish}; in {folder} there are: {known}")
    check_private(folder)
    with CtlClient(chosen[0]) as client:
        yield client
