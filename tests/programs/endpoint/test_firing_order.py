"""Which timer fires first: for each failure and backend, and what contradicts that order."""

import json
from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.programs.endpoint.firing_order import findings, orders
from openmrc.programs.endpoint.job_settings import JobSettings, read_settings
from tests.programs.in_process import run_here


def settings(environment: dict[str, str] | None = None, text: str = "", folder: Path | None = None) -> JobSettings:
    file = None
    if text:
        assert folder is not None
        file = folder / "job.yaml"
        file.write_text(text)
    return read_settings(environment or {}, file)


def first(job: JobSettings, failure: str) -> tuple[str, float] | None:
    order = next(each for each in orders(job) if each.failure == failure)
    return (order.first.timer, round(order.first.seconds, 3)) if order.first is not None else None


def test_with_backend_mrc_an_outage_ends_in_the_error_that_names_the_rank() -> None:
    job = settings()
    assert first(job, "one plane of a host fails") is None
    assert first(job, "all planes of a host fail") == ("Timers.user_timeout", 20.0)
    assert first(job, "a rank hangs in its own code") == ("group's timeout", 1800.0)
    assert first(job, "a rank never joins") == ("torchrun join", 600.0)
    assert findings(job) == []


def test_nccl_over_rdma_nics_loses_the_job_with_one_plane_and_over_libmrc_it_does_not() -> None:
    assert first(settings({"NCCL_IB_TIMEOUT": "20"}), "one plane of a host fails") == ("NCCL_IB_RETRY_CNT", 34.36)
    through = settings({"NCCL_IB_TIMEOUT": "20", "MRC_PLANES": "10.1.0.7,10.2.0.7"})
    assert first(through, "one plane of a host fails") is None
    assert first(through, "all planes of a host fail") == ("NCCL_IB_RETRY_CNT", 34.36)


def test_the_process_group_fires_before_a_queue_pair_of_nccl_that_waits_too_long() -> None:
    job = settings({"NCCL_IB_TIMEOUT": "25"})
    assert first(job, "all planes of a host fail") == ("dump", 615.0)
    assert any("NCCL's error" in text for text in findings(job))


def test_without_error_handling_nothing_ends_a_collective_of_nccl() -> None:
    job = settings({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "NCCL_IB_TIMEOUT": "0"})
    assert first(job, "all planes of a host fail") is None
    assert first(job, "a CUDA or NCCL call hangs") == ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", 480.0)
    assert len(findings(job)) == 2
    off = settings({"TORCH_NCCL_ENABLE_MONITORING": "false"})
    assert first(off, "a CUDA or NCCL call hangs") is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("timers: {user_timeout: 60}\ninit_process_group_timeout: 60", "RankLostError"),
        ("init_process_group_timeout: 4", "pause of 2 s"),
        ("timers: {timeout: 22, user_timeout: 10}", "retransmission timeouts"),
        ("longest_step: 2400", "raise `timeout=`"),
        ("scheduler: {grace: 30}", "orphaned"),
        ("scheduler: {grace: 90, time_limit: 600}", "may run 10 min"),
        ("environment: {MRC_TIMEOUT: 3}", "nothing reads it"),
        ("environment: {NCCL_ASYNC_ERROR_HANDLING: 1}", "old name"),
        ("environment: {TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC: 10}", "dump is written"),
    ],
)
def test_contradictions_are_named(text: str, word: str, tmp_path: Path) -> None:
    (found,) = findings(settings(text=text, folder=tmp_path))
    assert word in found


def test_the_scheduler_of_slurm_is_read_from_the_environment() -> None:
    job = settings({"SLURM_JOB_START_TIME": "1000", "SLURM_JOB_END_TIME": "2000"})
    assert job.scheduler is not None
    assert job.scheduler.time_limit == 1000
    assert first(job, "the scheduler stops the job") is not None


@pytest.mark.parametrize(
    ("environment", "text", "word"),
    [
        ({"NCCL_IB_TIMEOUT": "fast"}, "", "NCCL_IB_TIMEOUT: 'fast' is not a number in 0..31"),
        ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "x"}, "", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
        ({}, "timer: {}", "job.yaml: Object contains unknown field `timer`"),
        ({}, "init_process_group_timeout: -1", "init_process_group_timeout"),
        ({}, "timers: {timeout: 25}", "job.yaml: Expected `int` <= 24 - at `$.timers.timeout`"),
        ({}, "- 1", "job.yaml: expected names and values"),
        ({}, "backend: gloo", "gloo"),
    ],
)
def test_a_wrong_value_is_refused_by_name(environment: dict[str, str], text: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        orders(settings(environment, text, tmp_path))
    assert word in str(error.value)


def test_the_command_prints_orders_and_its_exit_code_says_whether_they_contradict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MRC_PLANES", "LD_PRELOAD", "NCCL_IB_TIMEOUT", "TORCH_NCCL_ASYNC_ERROR_HANDLING"):
        monkeypatch.delenv(name, raising=False)
    code, out, _ = run_here("doctor", "--timeouts")
    assert code == 0
    assert "->      20 s  Timers.user_timeout" in out
    monkeypatch.setenv("NCCL_IB_TIMEOUT", "26")
    code, out, _ = run_here("doctor", "--timeouts", "--json")
    document = json.loads(out)
    assert code == 1
    assert document["backend"] == "nccl"
    assert document["findings"]
    assert {each["failure"]: each["first"] for each in document["failures"]}["all planes of a host fail"] == "dump"
    assert run_here("doctor", "--file", tmp_path / "job.yaml")[0] == 2


def test_the_command_prints_the_table_of_the_page() -> None:
    code, out, _ = run_here("doctor", "--timers")
    assert code == 0
    assert "### Queue pair" in out
