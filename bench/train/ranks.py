"""Ranks as processes on the loopback: what the benches of this folder start."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable
from multiprocessing.queues import Queue
from typing import Any

SECONDS = 600.0


def run(size: int, program: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call `program(rank, size, "host:port", *arguments)` in a process per rank; return what each returned."""
    context = multiprocessing.get_context("spawn")
    answers: Queue[tuple[int, Any]] = context.Queue()
    address = f"127.0.0.1:{_free_port()}"
    processes = [
        context.Process(target=_one, args=(answers, program, rank, size, address, arguments)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        results = dict(answers.get(timeout=SECONDS) for _ in processes)
        for process in processes:
            process.join(20)
    finally:
        for process in processes:
            process.kill()
    for rank, result in results.items():
        if isinstance(result, BaseException):
            raise RuntimeError(f"rank {rank}: {result!r}")
    return [results[rank] for rank in range(size)]


def _one(
    answers: Queue[tuple[int, Any]], program: Callable[..., Any], rank: int, size: int, address: str, arguments: Any
) -> None:
    try:
        answers.put((rank, program(rank, size, address, *arguments)))
    except BaseException as error:
        answers.put((rank, RuntimeError(repr(error))))
        raise


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
