"""Wait for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def await_true(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return as soon as it holds; fail if it does not in time, which is for a busy machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
