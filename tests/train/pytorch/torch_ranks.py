"""Rank processes with torch, which run one program after the other, each in new process groups."""

from __future__ import annotations

import faulthandler
import importlib
import os
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.free_port import free_port
from tests.train.pytorch.forked import FORKS

SECONDS = 240.0  # for one program
PROGRAMS = (  # modules
    *(f"tests.train.pytorch.{each}" for each in ("every_size", "torch_programs", "torch_reports", "torch_trainers")),
    "tests.space.torch_rows",
)


class Failed(Exception):
    """A program has failed at a rank; the text is its traceback."""


class Ranks:
    """Processes that wait for programs."""

    def __init__(self, size: int, shares_memory: bool) -> None:
        pipes = [FORKS.Pipe() for _ in range(size)]
        self._pipes: list[Connection] = [ours for ours, _ in pipes]
        self._processes = [FORKS.Process(target=_serve, args=(theirs, shares_memory)) for _, theirs in pipes]
        for process in self._processes:
            process.start()

    def run(self, program: str, *arguments: Any, size: int | None = None, jobs: int = 1, **options: Any) -> list[Any]:
        """Return what `program(*arguments)` returned at each rank; Failed if one has raised.

        `size` is the number of ranks, split into `jobs` groups that do not know each other; options are those of
        `init_process_group`, in lists if they differ by rank.
        """
        results = self.outcomes(program, *arguments, size=size, jobs=jobs, **options)
        for rank, result in enumerate(results):
            if isinstance(result, Failed):
                raise AssertionError(f"rank {rank}: {result}")
        return results

    def outcomes(
        self, program: str, *arguments: Any, size: int | None = None, jobs: int = 1, **options: Any
    ) -> list[Any]:
        """Return for each rank what the program returned, or Failed."""
        pipes = self._pipes[:size]
        ports, each_job = [free_port() for _ in range(jobs)], len(pipes) // jobs
        for rank, pipe in enumerate(pipes):
            mine = {name: each[rank] if isinstance(each, list) else each for name, each in options.items()}
            job, within = divmod(rank, each_job)
            pipe.send((program, arguments, ports[job], each_job, within, mine))
        results = []
        for rank, pipe in enumerate(pipes):
            assert pipe.poll(SECONDS), f"rank {rank} hangs in {program}"
            try:
                results.append(pipe.recv())
            except OSError as error:  # its stack is on stderr if it crashed
                self._processes[rank].join(10)
                raise AssertionError(
                    f"rank {rank} ended in {program}: exit code {self._processes[rank].exitcode}"
                ) from error
        return results

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(10)
            process.kill()


@contextmanager
def ranks(size: int, *, shares_memory: bool = False) -> Iterator[Ranks]:
    """Return processes for the time of a `with` block; they use the network unless they share memory."""
    started = Ranks(size, shares_memory)
    try:
        yield started
    finally:
        started.close()


def _serve(pipe: Connection, shares_memory: bool) -> None:
    faulthandler.enable()
    os.environ["MRC_PLANES"] = "2"
    os.environ["MRC_SHARED_MEMORY"] = str(int(shares_memory))
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            program, arguments, port, size, rank, options = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_run(program, arguments, port, size, rank, options))
        except BaseException:
            pipe.send(Failed(traceback.format_exc()))


# The group of the program before. Its own worker thread may be the last to hold a ProcessGroupGloo, through a callback
# of a communication hook, and would join itself then, which ends the process.
_ended: list[Any] = []


def _run(program: str, arguments: Any, port: int, size: int, rank: int, options: dict[str, Any]) -> Any:
    import torch.distributed as dist

    options = {"timeout": 20.0, "backend": "mrc", "rank": rank, "world_size": size, **options}
    options["timeout"] = timedelta(seconds=options["timeout"])
    if "planes" in options:
        from openmrc.train.torch_backend import Options

        options["pg_options"] = Options(planes=options.pop("planes"))
    dist.init_process_group(init_method=f"tcp://127.0.0.1:{port}", **options)
    try:
        modules = (importlib.import_module(each) for each in PROGRAMS)  # no more of them than it takes
        return next(getattr(each, program) for each in modules if hasattr(each, program))(*arguments)
    finally:
        if dist.is_initialized():
            _ended[:] = [dist.group.WORLD]
            dist.destroy_process_group()


def udp_sockets() -> int:
    """Return how many UDP sockets this process has open."""
    own = {os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if _is_there(each)}
    with open("/proc/net/udp") as table:
        inodes = [line.split()[9] for line in table.read().splitlines()[1:]]
    return sum(f"socket:[{inode}]" in own for inode in inodes)


def memfds() -> int:
    """Return how many pieces of anonymous shared memory this process has mapped or open."""
    maps = Path("/proc/self/maps").read_text("utf-8").count("memfd:openmrc")
    return maps + sum(
        "memfd:openmrc" in os.readlink(f"/proc/self/fd/{each}")
        for each in os.listdir("/proc/self/fd")
        if _is_there(each)
    )


def threads() -> set[str]:
    """Return the names of the threads of this process that are ours."""
    return {each.name for each in threading.enumerate() if "openmrc" in each.name or "mrc" in each.name}


def _is_there(descriptor: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{descriptor}")
