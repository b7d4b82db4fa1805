"""Every error the package raises. All are children of `MrcError`.

`WireError` is the peer's fault, `MisuseError` the caller's, `ConfigError` a file's or an option's.
Protocol failures between healthy programs are not exceptions: they are completion statuses.
"""


class MrcError(Exception):
    """Base of every error of this package."""


class ConfigError(MrcError):
    """A file or an option is wrong. The text names file, line or field, the value, and what is allowed."""


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
