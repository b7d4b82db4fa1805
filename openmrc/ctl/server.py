"""The controller socket of one endpoint: serves operations from threads of its own, never from the endpoint's.

Who connects must be of this user, or root: the file's mode says so, and the kernel's word about the peer (SO_PEERCRED)
is checked again. Every wait ends: a greeting and a message must be complete within `MESSAGE_SECONDS`, an answer must be
taken within `ANSWER_SECONDS`, and a connection without calls ends after `IDLE_SECONDS`. At most `MOST_CONNECTIONS` are
open; the next one ends the one that has been idle longest.

docs/where.md says how to add an operation.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import inspect
import logging
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

from openmrc.ctl.channel import Channel
from openmrc.ctl.device import CtlDevice
from openmrc.ctl.errors import ForbiddenError, NotSupportedError
from openmrc.ctl.folder import listening
from openmrc.ctl.messages import (
    MOST_ANSWER,
    MOST_CALL,
    MOST_GREETING,
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
from openmrc.errors import CallError, InvalidArgumentError, TooBigError, WireError
from openmrc.version import __version__

_SERVED = (  # modules, with the functions in them: in one string, by which spec.reachability finds what is called late
    "openmrc.ctl.endpoint_ops:device ports set_port paths votes deny renew lift denials "
    "create_events destroy_events poll_events ep_batch",
    "openmrc.ctl.profile_ops:profiles modify_format modify_ev_profile query_evs modify_cc use_profiles",
    "openmrc.telemetry.snapshot_ops:snapshot events",
)
OPERATIONS = {name: module for module, _, names in (each.partition(":") for each in _SERVED) for name in names.split()}


class CtlOperation(NamedTuple):
    """An operation with the type of its requests, whose fields are its arguments after the device."""

    serve: Callable[..., Any]
    request: type[msgspec.Struct]


@functools.cache
def operation(name: str) -> CtlOperation:
    """Return an operation; ENOTSUP if there is none of this name."""
    module = OPERATIONS.get(name)
    if module is None:
        raise NotSupportedError(f"operation: {name!r}; there are {', '.join(OPERATIONS)}")
    serve = getattr(importlib.import_module(module), name)
    kinds, (_, *given) = get_type_hints(serve), inspect.signature(serve).parameters.values()
    fields = [(each.name, kinds[each.name], *(() if each.default is each.empty else (each.default,))) for each in given]
    return CtlOperation(serve, msgspec.defstruct(name, fields, kw_only=True))


log = logging.getLogger(__name__)
MOST_CONNECTIONS = 16
MESSAGE_SECONDS = 3.0
ANSWER_SECONDS = 5.0
IDLE_SECONDS = 60.0
STOP_SECONDS = 5.0
TICK_SECONDS = 0.5  # between two looks at leases
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_open_servers: weakref.WeakSet[CtlServer] = weakref.WeakSet()


class CtlConversation:
    """One connection, served in one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.channel = Channel(sock)
        self.idle_since = time.monotonic()  # s; meaningless while `is_busy`
        self.is_busy = False


class CtlServer:
    """Serves one endpoint from a socket file."""

    def __init__(self, device: CtlDevice, folder: Path, tick: Callable[[], None] = lambda: None) -> None:
        """Listen in `folder`; `tick` is called every half second. ConfigError: the folder cannot be used."""
        self._sock, self.path = listening(folder)
        self._device = device
        self._tick = tick
        self._owner = os.geteuid()
        self._conversations: list[CtlConversation] = []
        self._lock = threading.Lock()  # of the list
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="openmrc ctl", daemon=True)
        _open_servers.add(self)
        self._thread.start()

    @property
    def name(self) -> str:
        """The endpoint's name: that of the file, without its ending."""
        return self.path.stem

    def close(self) -> None:
        """Remove the file and end all connections; return when the threads have ended, or after a few seconds."""
        if self._is_closed:
            return
        self._is_closed = True
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread
        with self._lock:
            for each in self._conversations:
                each.channel.shut()
        self._thread.join(STOP_SECONDS)
        self._sock.close()

    def abandon(self) -> None:
        """Let go of the socket in a forked child: the file and the threads are the parent's."""
        self._is_closed = True
        self._sock.close()
        for each in self._conversations:
            each.channel.close()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while not self._is_closed:
            ready = poll.poll(TICK_SECONDS * 1000)
            if self._is_closed:
                return
            try:
                self._tick()
            except CallError:
                log.debug("mrc: controller socket: the endpoint is closing", exc_info=True)
            if ready:
                self._accept()

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                time.sleep(TICK_SECONDS)  # no descriptor is free: the backlog waits
            return
        conversation = CtlConversation(sock)
        with self._lock:
            if len(self._conversations) >= MOST_CONNECTIONS:
                self._end_idlest()
            self._conversations.append(conversation)
        threading.Thread(target=self._serve, args=(sock, conversation), name="openmrc ctl call", daemon=True).start()

    def _end_idlest(self) -> None:
        idle = [each for each in self._conversations if not each.is_busy] or self._conversations
        oldest = min(idle, key=lambda each: each.idle_since)
        self._conversations.remove(oldest)
        oldest.channel.shut()

    def _serve(self, sock: socket.socket, conversation: CtlConversation) -> None:
        channel = conversation.channel
        try:
            self._check_peer(sock)
            self._greet(channel)
            while not self._is_closed:
                self._answer_next(conversation)
        except CallError as error:
            self._say_goodbye(channel, CtlFailure.of(error))
        except WireError as error:
            self._say_goodbye(channel, CtlFailure(number=0, errno=errno.EBADMSG, reason=error.reason))
        except (OSError, EOFError):
            pass  # gone, or too slow
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._conversations.remove(conversation)
            channel.close()

    def _check_peer(self, sock: socket.socket) -> None:
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(found)
        if uid not in (0, self._owner):
            raise ForbiddenError(f"process {pid} is of user {uid}; this endpoint is of user {self._owner}")

    def _greet(self, channel: Channel) -> None:
        theirs = channel.receive(MOST_GREETING, MESSAGE_SECONDS, MESSAGE_SECONDS)
        if not isinstance(theirs, CtlGreeting):
            raise InvalidArgumentError("the first message must be a greeting")
        common_version(theirs)
        channel.send(CtlGreeting(oldest=OLDEST, newest=NEWEST, release=__version__), ANSWER_SECONDS)

    def _answer_next(self, conversation: CtlConversation) -> None:
        call = conversation.channel.receive(MOST_CALL, IDLE_SECONDS, MESSAGE_SECONDS)
        if not isinstance(call, CtlCall):
            raise InvalidArgumentError("only calls may follow the greeting")
        conversation.is_busy = True
        try:
            conversation.channel.send(self._result(call), ANSWER_SECONDS)
        finally:
            conversation.idle_since = time.monotonic()
            conversation.is_busy = False

    def _result(self, call: CtlCall) -> CtlMessage:
        try:
            found = operation(call.operation)
            request = msgspec.msgpack.decode(call.body, type=found.request)
            body = packed(found.serve(self._device, **msgspec.structs.asdict(request)))
            if len(bytes(body)) > MOST_ANSWER - MOST_GREETING:
                raise TooBigError(f"{call.operation}: an answer of {len(bytes(body))} bytes; ask for less at once")
            return CtlAnswer(number=call.number, body=body)
        except CallError as error:
            return CtlFailure.of(error, call.number)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            reason = f"{call.operation}: {error}"
            return CtlFailure(number=call.number, errno=errno.EINVAL, reason=reason)
        except Exception as error:
            log.exception("mrc: controller socket: %s failed", call.operation)
            return CtlFailure(number=call.number, errno=errno.EIO, reason=f"{call.operation}: {error!r}")

    @staticmethod
    def _say_goodbye(channel: Channel, failure: CtlFailure) -> None:
        with contextlib.suppress(OSError):
            channel.send(failure, MESSAGE_SECONDS)


def _abandon_all() -> None:
    for server in list(_open_servers):
        server.abandon()
    _open_servers.clear()


os.register_at_fork(after_in_child=_abandon_all)
