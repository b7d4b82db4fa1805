"""Every error the package raises. All are children of `MrcError`.

`WireError` is the peer's fault, `MisuseError` the caller's, `ConfigError` a file's or an option's.
Protocol failures between healthy programs are not exceptions: they are completion statuses.
"""

import errno as _errno


class MrcError(Exception):
    """Base of all errors of this package."""


class ConfigError(MrcError):
    """A file or an option is invalid. The text names file, line or field, the value, and the allowed values."""


class FieldError(ConfigError):
    """A field of a document is invalid; `place` locates it, such as "$.workloads[0]", for the line of its file."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(reason)
        self.place = place


class UsageError(ConfigError):
    """An option or an argument of a command is invalid: exit code 2, as for unknown options."""


class WireError(MrcError):
    """Bytes from the network or a capture that are not a well-formed packet."""

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset  # bytes from the start of what was parsed


class Truncated(WireError):
    """The bytes end before the packet does."""


class Malformed(WireError):
    """A field has an invalid value."""


class MisuseError(MrcError):
    """The call is not allowed in the current state, which the text names."""


class PeerError(MrcError):
    """The peer is gone, unresponsive or incompatible. The text names the peer and its last progress."""


class CallError(MrcError):
    """A failed verb or controller call: `errno` as its C counterpart, the text with the reason."""

    errno = _errno.EIO

    def __init__(self, reason: str, needed: int | None = None, done: int = 0) -> None:
        super().__init__(f"{reason} [{_errno.errorcode[self.errno]}]")
        self.reason = reason
        self.needed = needed  # required number of entries, if an array was too short
        self.done = done  # entries of a batch that were applied before the one that failed


class InvalidArgumentError(CallError):
    """EINVAL: an argument is out of range, missing, or not allowed in this state."""

    errno = _errno.EINVAL


class BusyError(CallError):
    """EBUSY: an object in use depends on the state to be changed."""

    errno = _errno.EBUSY


class TooBigError(CallError):
    """E2BIG: more than supported, or an array too short for the result (`needed`)."""

    errno = _errno.E2BIG


class NotFoundError(CallError):
    """ENOENT: the object does not exist."""

    errno = _errno.ENOENT
