"""Ranks in processes of their own that are killed, stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openmrc.train.links.store import TcpStore
from tests.needs import require

pytestmark = pytest.mark.needs("jit")
SIZE = 3
RANK = """
import os, sys, time
import numpy as np
from openmrc.train.group import Group
from openmrc.train.errors import RankLostError
from openmrc.train.links.mesh import Timers
from openmrc.train.links.store import TcpStore

rank, size, port, user_timeout, shares = map(int, sys.argv[1:])
store = TcpStore("127.0.0.1", port, serve=False)
pid = os.getpid()
timers = Timers(user_timeout=user_timeout)
group = Group(store, rank, size, planes="2", timeout=60, timers=timers, shared_memory=bool(shares))
print("ready", flush=True)
if os.fork() == 0:  # as the workers of a data loader do, it looks now and then whether its process is there
    os.close(1)
    while os.getppid() == pid:
        time.sleep(3)
    os._exit(0)
try:
    while True:
        group.all_reduce(np.ones(1000))
        print("step", flush=True)
        time.sleep(0.02)
except RankLostError as error:
    print("lost", time.monotonic(), error, flush=True)
"""


class Ranks:
    """Processes that reduce again and again."""

    def __init__(self, user_timeout: int, shares_memory: bool) -> None:
        self.store = TcpStore("127.0.0.1", 0, serve=True)
        self.processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    RANK,
                    *map(str, (rank, SIZE, self.store.port, user_timeout, int(shares_memory))),
                ],
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            for rank in range(SIZE)
        ]
        for rank in range(SIZE):
            self.until(rank, "step")

    def until(self, rank: int, word: str) -> str:
        """Return the next line of a rank that begins with `word`."""
        output: Any = self.processes[rank].stdout
        return next(line for line in output if line.startswith(word))

    def kill(self, rank: int, number: int) -> float:
        os.kill(self.processes[rank].pid, number)
        return time.monotonic()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self.store.close()


@pytest.fixture(params=["network", "shared memory"])
def patient(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    """Ranks that tolerate a silence of 20 s."""
    yield from started(20, request.param == "shared memory")


@pytest.fixture
def impatient() -> Iterator[Ranks]:
    """Ranks that tolerate a silence of a second."""
    yield from started(1)


def started(user_timeout: int, shares_memory: bool = False) -> Iterator[Ranks]:
    require("jit")
    ranks = Ranks(user_timeout, shares_memory)
    yield ranks
    ranks.close()


def test_a_stopped_rank_is_not_lost_within_the_time_out_and_a_killed_one_is_within_a_second(patient: Ranks) -> None:
    patient.kill(1, signal.SIGSTOP)
    time.sleep(3)
    patient.kill(1, signal.SIGCONT)
    for rank in range(SIZE):
        for _ in range(200):
            patient.until(rank, "step")
    at = patient.kill(1, signal.SIGKILL)
    for rank in (0, 2):
        _, when, error = patient.until(rank, "lost").split(maxsplit=2)
        assert float(when) - at < 1.0
        assert "rank 1 is lost" in error


def test_a_rank_that_was_stopped_for_too_long_learns_at_once_that_it_was_lost(impatient: Ranks) -> None:
    impatient.kill(1, signal.SIGSTOP)
    for rank in (0, 2):
        assert "rank 1 is lost" in impatient.until(rank, "lost")
    at = impatient.kill(1, signal.SIGCONT)
    _, when, error = impatient.until(1, "lost").split(maxsplit=2)
    assert float(when) - at < 1.0
    assert "rank 1 is lost" in error
