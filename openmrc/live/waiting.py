"""Deadlines of waiting calls: any number of seconds, infinity included."""

import math
import time

from openmrc.live.errors import InvalidArgumentError

LONGEST_SLEEP = 3600.0  # s; the kernel's waits take a bounded number, so longer ones are repeated


def deadline_after(timeout: float) -> float:
    """Return the end (s of the monotonic clock) of a wait of `timeout` seconds; EINVAL if that is not a number."""
    if math.isnan(timeout):
        raise InvalidArgumentError("timeout: not a number")
    return time.monotonic() + timeout


def seconds_until(deadline: float) -> float:
    """Return how long to sleep before checking the deadline again: 0 to `LONGEST_SLEEP` seconds."""
    return min(max(deadline - time.monotonic(), 0.0), LONGEST_SLEEP)


def is_over(deadline: float) -> bool:
    return time.monotonic() >= deadline
