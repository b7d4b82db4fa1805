"""Errors of the application API beyond those of `openmrc.errors`."""

import errno as _errno
import resource as _resource
from collections.abc import Iterator
from contextlib import contextmanager

from openmrc.errors import BusyError, CallError, InvalidArgumentError, PeerError

VerbsError = CallError  # base of refused calls; `errno` has the value that verbs would return


class NoRoomError(CallError):
    """ENOMEM: a queue is full, or a table of the context is used up."""

    errno = _errno.ENOMEM


class OverrunError(CallError):
    """EOVERFLOW: a completion queue got more completions than it holds; some are lost."""

    errno = _errno.EOVERFLOW


class ClosedError(CallError):
    """ESHUTDOWN: the object or its context is closed."""

    errno = _errno.ESHUTDOWN


class DeadlineError(PeerError):
    """A wait timed out. The text names peer, planes, EVs and last progress."""

    errno = _errno.ETIMEDOUT


class ExchangeError(PeerError):
    """The peers disagree, or the channel between them failed. The text shows both sides' values."""

    errno = _errno.EPROTO


class UnusableOfferError(ExchangeError):
    """The peer is in order, but cannot be used here: for example, it is already known by other addresses."""


@contextmanager
def descriptors_for(what: str) -> Iterator[None]:
    """Raise NoRoomError, naming `what` and the limit, where the system has no file descriptor left."""
    try:
        yield
    except OSError as error:
        if error.errno not in (_errno.EMFILE, _errno.ENFILE):
            raise
        limit = _resource.getrlimit(_resource.RLIMIT_NOFILE)[0]
        raise NoRoomError(f"{what}: no file descriptor is left of {limit} (ulimit -n)") from error


__all__ = [
    "BusyError",
    "CallError",
    "ClosedError",
    "DeadlineError",
    "ExchangeError",
    "InvalidArgumentError",
    "NoRoomError",
    "OverrunError",
    "UnusableOfferError",
    "VerbsError",
]
