"""While a stream runs the network gets a processor before its ends; afterwards all is as before."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.lab.experiments import priorities
from bench.lab.experiments.priorities import Priority, network_first

pytestmark = pytest.mark.needs("root")
USUAL = (os.SCHED_OTHER, 0)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[int]:
    """A process in the place of ksoftirqd, which streams of other tests may be using."""
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(priorities, "softirq_threads", lambda: [process.pid])
        monkeypatch.setattr(priorities, "LOCK", tmp_path / "streams.lock")
        os.sched_setscheduler(process.pid, os.SCHED_OTHER, os.sched_param(0))
        yield process.pid
        process.kill()


def of_an_end() -> Priority:
    """Return the priority of a thread that is the end of a stream."""
    found: list[Priority] = []

    def end() -> None:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        priorities.ends_second()
        found.append(priorities.of(0))

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    return found[0]


def test_the_network_comes_before_the_ends_of_a_stream_and_returns_to_its_place(network: int) -> None:
    with network_first():
        policy, priority = of_an_end()
        assert policy == os.SCHED_RR
        assert priorities.of(network) > (os.SCHED_RR, priority)
    assert priorities.of(network) == USUAL


def test_the_last_of_several_streams_takes_the_priority_back(network: int) -> None:
    with network_first():
        with network_first():
            pass
        assert priorities.of(network)[0] == os.SCHED_RR
    assert priorities.of(network) == USUAL


def test_ends_have_their_usual_priority_if_the_network_has_no_other(network: int) -> None:
    assert priorities.of(network) == USUAL
    assert of_an_end() == USUAL


def test_a_priority_that_the_operator_chose_stays(network: int) -> None:
    os.sched_setscheduler(network, os.SCHED_FIFO, os.sched_param(50))
    with network_first():
        assert of_an_end()[0] == os.SCHED_RR
        assert priorities.of(network) == (os.SCHED_FIFO, 50)
    assert priorities.of(network) == (os.SCHED_FIFO, 50)


def test_the_threads_of_this_kernel_are_found_by_their_name() -> None:
    for thread in priorities.softirq_threads():  # none in a PID namespace
        assert Path(f"/proc/{thread}/comm").read_text("ascii").startswith("ksoftirqd/")
