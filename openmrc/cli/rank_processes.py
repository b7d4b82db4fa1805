"""Processes of one machine that each are a rank, started by a command."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def killed_at_end(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Kill those of the processes that still run when the block ends; processes may be added within it."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def free_port() -> int:
    """Return a TCP port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
