"""Processes for the ranks of a command on this machine."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def killed_at_end(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Kill processes that are still running when the block ends; the block may add processes."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def free_port() -> int:
    """Return a free TCP port on the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
