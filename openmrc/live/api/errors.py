"""What the application API raises beyond the refusals of `openmrc.errors`: no room, closed, too late, no agreement."""

from __future__ import annotations

import errno as _errno

from openmrc.errors import BusyError, CallError, InvalidArgumentError, PeerError

VerbsError = CallError  # what a refused call raises; `errno` says why in the numbers of verbs


class NoRoomError(CallError):
    """ENOMEM: a queue is full, or a table of the context is used up."""

    errno = _errno.ENOMEM


class ClosedError(CallError):
    """ESHUTDOWN: the object, or its context, was closed."""

    errno = _errno.ESHUTDOWN


class DeadlineError(PeerError):
    """A wait has ended without what it waited for. The text names peer, planes, EVs and last progress."""

    errno = _errno.ETIMEDOUT


class ExchangeError(PeerError):
    """The peers could not agree, or the channel between them broke. The text shows both sides' values."""

    errno = _errno.EPROTO


__all__ = [
    "BusyError",
    "CallError",
    "ClosedError",
    "DeadlineError",
    "ExchangeError",
    "InvalidArgumentError",
    "NoRoomError",
    "VerbsError",
]
