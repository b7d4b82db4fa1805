"""How long the host kept tester and devices waiting for a processor: what makes a failure inconclusive."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from openmrc.conform.devices.process import ProcessDevice


class RunDelays:
    """Adds up the run delays of this process and of the adapters, from when each was first seen."""

    def __init__(self, devices: Sequence[ProcessDevice]) -> None:
        """Watch this process and these devices."""
        self._devices = devices
        self._seen: dict[int, tuple[int, int]] = {}  # process -> when first seen, and now (ns)

    def total(self) -> int:
        """Return how long (ns) they were ready to run and had no processor."""
        for pid in [os.getpid(), *(device.pid for device in self._devices if device.pid is not None)]:
            delay = run_delay(pid)
            first, _ = self._seen.get(pid, (delay, delay))
            self._seen[pid] = first, max(delay, first)
        return sum(now - first for first, now in self._seen.values())


def run_delay(pid: int) -> int:
    """Return how long (ns) the threads of a process were ready to run and had no processor."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # the thread has ended, or the kernel does not count
    return total
