"""Processes that keep the processors busy beside a benchmark."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` processes that compute without end, meanwhile."""
    working = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(count)]
    for each in working:
        each.start()
    try:
        yield
    finally:
        for each in working:
            each.kill()


def _compute() -> None:
    while True:
        sum(number * number for number in range(1 << 16))
