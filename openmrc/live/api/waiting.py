"""Deadlines of calls that wait: any number of seconds, infinity included."""

from __future__ import annotations

import math
import time

from openmrc.live.api.errors import InvalidArgumentError

LONGEST_SLEEP = 3600.0  # s; the kernel's waits take a bounded number, so longer ones are repeated


def deadline_after(timeout: float) -> float:
    """Return the time (s of the monotonic clock) at which a wait of `timeout` seconds ends; EINVAL if it is no time."""
    if math.isnan(timeout):
        raise InvalidArgumentError("timeout: it is not a number")
    return time.monotonic() + timeout


def seconds_until(deadline: float) -> float:
    """Return how long to sleep before looking at the deadline again: from 0 to `LONGEST_SLEEP` seconds."""
    return min(max(deadline - time.monotonic(), 0.0), LONGEST_SLEEP)


def is_over(deadline: float) -> bool:
    """Whether a deadline has passed."""
    return time.monotonic() >= deadline
