"""A pytest plugin: what a run of the tests made goes away with it, also if it was ended.

SIGTERM ends a run as Ctrl-C does, so fixtures still remove what they made. After SIGKILL the next run removes it: the
names of namespaces and labs of tests have the number of the process that made them, which is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from tests.needs import is_root

NAMESPACES = Path("/run/netns")
_LAB = re.compile(
    r"mrc\.([ct](\d+)(?:-[a-z0-9_-]*)?)\."
)  # of conftest.py in tests/lab, and of tests/programs/test_lab.py
_OTHER = re.compile(r"(?:mrcf|mrcexp|mrc-[a-z]+-)(\d+)(?:-|$)")


def pytest_configure(config: pytest.Config) -> None:
    with contextlib.suppress(ValueError):  # pytest may run in another thread, which gets no signals
        signal.signal(signal.SIGTERM, _interrupt)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput") and is_root():
        remove_leftovers()


def _interrupt(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt


def remove_leftovers() -> list[str]:
    """Remove namespaces and labs whose process is gone, with what runs in them; return their names."""
    names = [path.name for path in NAMESPACES.iterdir()] if NAMESPACES.is_dir() else []
    labs = {match[1] for name in names if (match := _LAB.match(name)) and not _lives(match[2])}
    others = [name for name in names if (match := _OTHER.match(name)) and not _lives(match[1])]
    if labs or others:
        from openmrc.errors import MrcError
        from openmrc.lab import lifetime, namespaces

        for lab in labs:
            with contextlib.suppress(MrcError):  # another run removes it
                lifetime.down(lab)
        with contextlib.suppress(MrcError):
            namespaces.remove(others)
    return sorted([*labs, *others])


def _lives(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (OverflowError, PermissionError):
        pass
    return True
