"""What this process has used so far (getrusage(2))."""

from __future__ import annotations

import resource


def peak_bytes() -> int:
    """Return the largest resident size (bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def system_s() -> float:
    """Return the processor time in the kernel (s): in a run of the simulator, that of supplying pages."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime
