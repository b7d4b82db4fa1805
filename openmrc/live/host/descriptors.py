"""File descriptors, when the process has none left."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from openmrc.live.errors import NoRoomError


@contextmanager
def descriptors_for(what: str) -> Iterator[None]:
    """Raise NoRoomError, naming `what` and the limit, where the system has no file descriptor left."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise NoRoomError(f"{what}: no file descriptor is left of {limit} (ulimit -n)") from error
