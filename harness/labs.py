"""A lab for as long as a bench or test needs it, and programs on its nodes."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

from openmrc.lab import lifetime, namespaces, record, run

Target = int | IO[bytes] | None
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_SIGNALLED = 128  # exit codes as in shells


@contextmanager
def held(fabric: Path, name: str, trimming: bool = True) -> Iterator[record.Record]:
    """Keep a lab up for a block and remove it however the block ends, SIGTERM and SIGHUP included.

    Remnants of an earlier lab of this name are removed first. For programs that own the name.
    """
    namespaces.require_root()
    with _answering(_ENDING, _end):
        if namespaces.of_lab(name) or name in record.recorded():
            lifetime.down(name)
        written = lifetime.up(fabric, name, trimming)
        try:
            yield written
        finally:
            with _answering((*_ENDING, signal.SIGINT), signal.SIG_IGN):  # a second signal does not interrupt it
                lifetime.down(name)


def processes_in(lab: str) -> list[int]:
    """Return the processes in the namespaces of a lab."""
    return namespaces.processes_in({(namespaces.NAMED / name).stat().st_ino for name in namespaces.of_lab(lab)})


def _end(number: int, _: object) -> NoReturn:
    """End the block by an exception when a signal arrives."""
    raise SystemExit(_SIGNALLED + number)


@contextmanager
def _answering(numbers: Iterable[signal.Signals], handler: Any) -> Iterator[None]:
    """Handle these signals so during a block; in the main thread only, others get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def start(
    lab: str,
    node: str,
    command: Sequence[str],
    *,
    stdin: Target = None,
    stdout: Target = None,
    stderr: Target = None,
    extra: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command on a node; `extra` is of its environment."""
    env = {**run.environment(lab, node), **(extra or {})}
    asked = run.command_line(lab, node, command)
    return subprocess.Popen(asked, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
