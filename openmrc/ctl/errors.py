"""Errors of controller calls beyond those of `openmrc.errors`, and how they come back from another process."""

import errno as _errno

from openmrc.ctl.messages import CtlFailure
from openmrc.errors import BusyError, CallError, InvalidArgumentError, NotFoundError, TooBigError


class NotSupportedError(CallError):
    """ENOTSUP: this endpoint does not know the operation, or cannot do it."""

    errno = _errno.ENOTSUP


class FencedError(CallError):
    """ESTALE: a controller with a newer epoch has spoken; this one must stop."""

    errno = _errno.ESTALE


class ForbiddenError(CallError):
    """EPERM: the process on the other side belongs to another user."""

    errno = _errno.EPERM


class RemoteError(CallError):
    """A failure with an errno that has no class of its own."""


_CLASSES: dict[int, type[CallError]] = {
    each.errno: each
    for each in (InvalidArgumentError, BusyError, TooBigError, NotFoundError, NotSupportedError, FencedError,
                 ForbiddenError)
}  # fmt: skip


def error_of(failure: CtlFailure) -> CallError:
    """Return the error that the other side raised."""
    known = failure.errno in _errno.errorcode
    error = CallError.__new__(_CLASSES.get(failure.errno, RemoteError))
    error.errno = failure.errno if known else _errno.EIO
    error.__init__(failure.reason, failure.needed, failure.done)  # type: ignore[misc]
    return error
