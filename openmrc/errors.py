"""Every error the package raises. All are children of `MrcError`.

`WireError` is the peer's fault, `MisuseError` the caller's, `ConfigError` a file's or an option's.
Protocol failures between healthy programs are not exceptions: they are completion statuses.
"""

import errno as _errno


class MrcError(Exception):
    """Base of every error of this package."""


class ConfigError(MrcError):
    """A file or an option is wrong. The text names file, line or field, the value, and what is allowed."""


class UsageError(ConfigError):
    """An option or an argument of a command is wrong: exit code 2, as for options that do not exist."""


class WireError(MrcError):
    """Bytes from the network or a capture that are not a well-formed packet."""

    def __init__(self, reason: str, offset: int = 0) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset  # bytes from the start of what was parsed


class Truncated(WireError):
    """The bytes end before the packet does."""


class Malformed(WireError):
    """A field holds what it must not."""


class MisuseError(MrcError):
    """The caller did what the state does not allow. The text names the state."""


class PeerError(MrcError):
    """The other side is gone, silent or incompatible. The text names peer and last progress."""


class CallError(MrcError):
    """A verb or a controller call that fails as its C counterpart does: `errno` says how, the text what was wrong."""

    errno = _errno.EIO

    def __init__(self, reason: str, needed: int | None = None, done: int = 0) -> None:
        super().__init__(f"{reason} [{_errno.errorcode[self.errno]}]")
        self.reason = reason
        self.needed = needed  # entries that would have been enough, when an array was too short
        self.done = done  # entries of a batch that were applied before the one that failed


class InvalidArgumentError(CallError):
    """EINVAL: an argument is out of range, missing, or not allowed in this state."""

    errno = _errno.EINVAL


class BusyError(CallError):
    """EBUSY: something that is in use depends on what the call would change."""

    errno = _errno.EBUSY


class TooBigError(CallError):
    """E2BIG: more than can be supported, or an array too short for the answer (`needed`)."""

    errno = _errno.E2BIG


class NotFoundError(CallError):
    """ENOENT: there is no such thing."""

    errno = _errno.ENOENT
