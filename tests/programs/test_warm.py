"""Compiling in advance: which jobs run, in which order, and what happens when one fails."""

import threading

import pytest

from openmrc.core import cache
from openmrc.errors import MrcError
from openmrc.programs import warm


class FakeProcess:
    """Stands for a compiling process; one of a failing job ends with status 1."""

    started: list[tuple[str, str]]
    failing: tuple[str, str] | None
    lock = threading.Lock()

    def __init__(self, command: list[str]) -> None:
        self.job = command[-2], command[-1]
        with self.lock:
            self.started.append(self.job)

    def wait(self) -> int:
        return int(self.job == self.failing)

    def terminate(self) -> None:
        pass


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> type[FakeProcess]:
    FakeProcess.started, FakeProcess.failing = [], None
    monkeypatch.setattr("openmrc.programs.warm.subprocess.Popen", FakeProcess)
    monkeypatch.setattr(warm, "_is_ready", lambda world: False)
    return FakeProcess


def test_every_job_runs_once_and_a_worlds_rest_after_its_halves(processes: type[FakeProcess]) -> None:
    warm.compile_all()
    assert sorted(processes.started) == sorted((job.world, job.entry) for job in warm.JOBS)
    rest = processes.started.index(("live", ""))
    assert {("live", "take_in"), ("live", "send_out")} <= set(processes.started[:rest])


def test_what_is_in_the_cache_starts_no_process(processes: type[FakeProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_is_ready", lambda world: True)
    warm.compile_all()
    assert processes.started == []


def test_a_failed_job_is_an_error_of_its_world_alone(processes: type[FakeProcess]) -> None:
    processes.failing = "live", "take_in"
    with warm.Compilation("live", "sim") as compilation:
        compilation.wait_for("sim")
        with pytest.raises(MrcError, match=r"openmrc\.live: could not be compiled"):
            compilation.wait_for("live")
    assert ("live", "") not in processes.started


def test_a_process_compiles_the_chosen_entry_or_all_but_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_chosen", "")
    assert not cache.is_left_out("run_window")
    cache.choose_entry("run_window")
    assert (cache.is_left_out("run_window"), cache.is_left_out("level")) == (False, True)
    cache.choose_entry("!run_window")
    assert (cache.is_left_out("run_window"), cache.is_left_out("level")) == (True, False)
