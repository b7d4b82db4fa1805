"""Running real commands as processes on loopback."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 300.0  # for any of them, also where kernels compile beside other work; below the limit of a test


def mrc(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
    """Start a command; SIGINT works in it even where the shell that runs the tests ignores it."""
    command = [sys.executable, "-m", "openmrc.programs.main", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,  # type: ignore[call-overload]
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr."""
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out.decode(), err.decode()


def run(*arguments: object) -> tuple[int, str, str]:
    return finish(mrc(*arguments))


@contextmanager
def listening(*arguments: object) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a command that listens; give it and its TCP port; end it afterwards."""
    reader, writer = os.pipe()
    process = mrc(*arguments, "--port", 0, "--ready-fd", writer, pass_fds=[writer])
    os.close(writer)
    try:
        with os.fdopen(reader) as ready:
            port = ready.readline()
        if not port:
            raise AssertionError(f"ended before it listened: {finish(process)}")
        yield process, int(port)
    finally:
        process.kill()
        process.communicate()
