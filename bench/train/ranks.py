"""Run the ranks of a bench as processes on the loopback."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import Queue
from typing import Any

from harness.free_port import free_port

SECONDS = 900.0  # time for all ranks to return


def run(size: int, program: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call `program(rank, size, "host:port", *arguments)` in a process per rank; return the results by rank.

    Raises RuntimeError with the error of a rank that failed.
    """
    context = multiprocessing.get_context("spawn")
    results_queue: Queue[tuple[int, Any]] = context.Queue()
    address = f"127.0.0.1:{free_port()}"
    processes = [
        context.Process(target=_run_rank, args=(results_queue, program, rank, size, address, arguments))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        results = dict(results_queue.get(timeout=SECONDS) for _ in processes)
        for process in processes:
            process.join(20)
    finally:
        for process in processes:
            process.kill()
    for rank, result in results.items():
        if isinstance(result, BaseException):
            raise RuntimeError(f"rank {rank}: {result!r}")
    return [results[rank] for rank in range(size)]


def _run_rank(
    results_queue: Queue[tuple[int, Any]],
    program: Callable[..., Any],
    rank: int,
    size: int,
    address: str,
    arguments: Any,
) -> None:
    try:
        results_queue.put((rank, program(rank, size, address, *arguments)))
    except BaseException as error:
        results_queue.put((rank, RuntimeError(repr(error))))
        raise
