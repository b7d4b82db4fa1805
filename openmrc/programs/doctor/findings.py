"""Settings that contradict each other: the timer that should fire first does not, or none does."""

from __future__ import annotations

from collections.abc import Iterator

from openmrc.programs.doctor.job_settings import INFINITE, KNOWN_VARIABLES, JobSettings
from openmrc.programs.doctor.timer_table import in_words

_OLD_NAMES = {
    name.removeprefix("TORCH_"): name
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ENABLE_MONITORING")
}


def findings(settings: JobSettings) -> list[str]:
    """Return one sentence for each contradiction, with what to do about it."""
    of_backend = _of_nccl if settings.backend == "nccl" else _of_mrc
    return [*of_backend(settings), *_of_job(settings), *_of_names(settings)]


def _of_mrc(settings: JobSettings) -> Iterator[str]:
    group, user = settings.group_timeout, settings.user_timeout
    if user >= group:
        yield (
            f"Timers.user_timeout is {in_words(user)}, the group's timeout {in_words(group)}: an outage ends in"
            " CollectiveTimeoutError, which knows less than RankLostError; set it to half the group's timeout"
        )
    rto = 1.024e-6 * 2**settings.timers.timeout
    if user < 4 * rto:
        yield f"Timers.user_timeout is {in_words(user)}, less than four retransmission timeouts of {in_words(rto)}"
    if settings.timers.user_timeout is None and user < 5:
        yield f"the group's timeout is {in_words(group)}, so a pause of {in_words(user)} already loses a rank"


def _of_nccl(settings: JobSettings) -> Iterator[str]:
    group = settings.group_timeout
    if settings.ib_retries == INFINITE:
        yield "NCCL_IB_TIMEOUT=0: queue pairs wait for ever, so only the process group's timeout ends an outage"
    elif settings.ib_retries > group:
        yield (
            f"NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT give {in_words(settings.ib_retries)}, the process group"
            f" {in_words(group)}: NCCL's error, which names the queue pair, never comes"
        )
    if not settings.watchdog_ends_process:
        yield "TORCH_NCCL_ASYNC_ERROR_HANDLING=0: nothing ends a collective that hangs; leave it at 3"
    if settings.heartbeat == INFINITE:
        yield "TORCH_NCCL_ENABLE_MONITORING=0: nothing ends a process whose watchdog hangs in a CUDA or NCCL call"
    elif settings.heartbeat <= settings.dump:
        yield (
            f"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC is {in_words(settings.heartbeat)}, the wait for the dump"
            f" {in_words(settings.dump)}: the process may end before its dump is written"
        )


def _of_job(settings: JobSettings) -> Iterator[str]:
    group, step = settings.group_timeout, settings.longest_step
    if step is not None and step >= group:
        yield (
            f"longest_step is {in_words(step)}, the process group's timeout {in_words(group)}: a rank that saves or"
            " loads ends the job; raise `timeout=` of init_process_group"
        )
    if settings.scheduler is None:
        return
    if settings.scheduler.grace <= settings.torchrun.shutdown_timeout:
        yield (
            f"the scheduler kills {in_words(settings.scheduler.grace)} after SIGTERM, torchrun gives its ranks"
            f" {in_words(settings.torchrun.shutdown_timeout)}: ranks may be orphaned and dumps cut; allow more grace,"
            " or set TORCH_ELASTIC_SHUTDOWN_TIMEOUT lower"
        )
    if settings.scheduler.time_limit <= group:
        yield f"the job may run {in_words(settings.scheduler.time_limit)}, its process group waits {in_words(group)}"


def _of_names(settings: JobSettings) -> Iterator[str]:
    for name in sorted(settings.environment):
        if name.startswith("MRC_") and name not in KNOWN_VARIABLES:
            yield f"{name} is set, and nothing reads it"
        if name in _OLD_NAMES:
            yield f"{name} is an old name: use {_OLD_NAMES[name]}, which is what this report reads"
