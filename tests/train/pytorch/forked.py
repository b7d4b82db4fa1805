"""Processes of a job as forks of one process that has imported torch and loaded the engine's compiled code.

Each import takes seconds of a processor; the fork takes milliseconds. The server (multiprocessing's) has no threads
when it forks: the endpoint that loads the compiled code is closed again.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.train.pytorch.forked_imports"])
_ENVIRONMENT = {"MRC_PLANES": "2", "OMP_NUM_THREADS": "1"}


@contextmanager
def job(module: str, address: str, folder: Path) -> Iterator[Callable[[str], ForkServerProcess]]:
    """Yield a function that starts `main(address, folder, name)` of a module beside this one; all end with the block.

    What a process writes to its standard error is in the folder, in `name`.log.
    """
    processes: list[ForkServerProcess] = []

    def start(name: str) -> ForkServerProcess:
        processes.append(FORKS.Process(target=_run, args=(module, address, folder, name)))
        processes[-1].start()
        return processes[-1]

    try:
        yield start
    finally:
        for process in processes:
            process.kill()
            process.join()


def exit_code(process: ForkServerProcess, seconds: float) -> int | None:
    """Return the exit code; that of a signal is negative. None if the process has not ended in time."""
    process.join(seconds)
    return process.exitcode


def _run(module: str, address: str, folder: Path, name: str) -> None:
    os.environ.update(_ENVIRONMENT)
    with (folder / f"{name}.log").open("wb", buffering=0) as log, suppress(OSError):
        os.dup2(log.fileno(), sys.stderr.fileno())
    importlib.import_module(f"tests.train.pytorch.{module}").main(address, folder, name)
