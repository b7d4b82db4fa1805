"""Which timers a failure starts, and in which order they fire: the first to end something is what the user sees.

Times count from the failure, as if a collective was running; those of the network are the latest, as packets leave all
the time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from openmrc.programs.endpoint.job_settings import INFINITE, KNOWN_VARIABLES, JobSettings
from openmrc.programs.endpoint.timer_table import ACK_TIMEOUT_UNIT_S, in_words, seconds_of

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


@dataclass(frozen=True)
class Firing:
    """A timer that a failure starts."""

    seconds: float  # after the failure; inf: never
    timer: str
    effect: str
    ends: bool  # ends the job, or the collective; otherwise it repairs or reports


@dataclass(frozen=True)
class FailureOrder:
    """A failure and the timers that it starts, the first to fire first."""

    failure: str
    firings: tuple[Firing, ...]

    @property
    def first(self) -> Firing | None:
        """Return the first timer that ends something; None: nothing does."""
        return next((each for each in self.firings if each.ends and each.seconds < INFINITE), None)


def orders(settings: JobSettings) -> tuple[FailureOrder, ...]:
    """Return the firing order for every failure that these settings know."""
    kind = "mrc" if settings.backend == "mrc" else f"nccl over {settings.transport}"
    timers = _timers(settings)
    found = []
    for failure, by_kind in _FAILURES.items():
        names = by_kind.get(kind) or by_kind.get(settings.backend, "")
        firings = [timers[name] for name in names.split(", ") if name in timers]
        if firings:
            found.append(FailureOrder(failure, tuple(sorted(firings, key=lambda each: each.seconds))))
    return tuple(found)


def _timers(settings: JobSettings) -> dict[str, Firing]:
    """Return the timers that these settings have, by name."""
    agent, group, scheduler = settings.torchrun, settings.group_timeout, settings.scheduler
    gone = seconds_of("process gone") + seconds_of("check of timeouts")
    keep_alive = agent.keep_alive_interval * agent.keep_alive_max_attempt
    rows = [
        Firing(seconds_of("loss delay"), "loss delay", "the lost packets leave on other paths", False),
        Firing(
            ACK_TIMEOUT_UNIT_S * 2**settings.timers.timeout,
            "retransmission timeout",
            "retransmissions and probes",
            False,
        ),
        Firing(min(seconds_of("slow collective"), group / 3), "slow collective", "ranks say what they wait for", False),
        Firing(settings.user_timeout, "Timers.user_timeout", "RankLostError at every rank, naming the rank", True),
        Firing(group, "group's timeout", "CollectiveTimeoutError: the group ends", True),
        Firing(gone, "process gone", "RankLostError at every other rank", True),
        Firing(settings.ib_timeout, "NCCL_IB_TIMEOUT", "retransmission", False),
        Firing(settings.ib_retries, "NCCL_IB_RETRY_CNT", "RETRY_EXC_ERR: NCCL fails the collective", True),
        Firing(settings.heartbeat, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "torch ends the process", True),
        Firing(agent.monitor_interval, "torchrun monitor", "SIGTERM to the other ranks of its host", True),
        Firing(agent.monitor_interval + agent.shutdown_timeout, "torchrun kill", "SIGKILL to them", True),
        Firing(keep_alive, "torchrun keep-alive", "the host leaves the rendezvous, for the next restart", False),
        Firing(agent.join_timeout, "torchrun join", "RendezvousTimeoutError: hosts are missing", True),
        Firing(group, "init_process_group", "an error that names missing ranks", True),
    ]
    if settings.watchdog_ends_process:
        rows += [
            Firing(group, "process group", "the watchdog sees the timeout, ranks dump", False),
            Firing(group + settings.dump, "dump", "torch ends the process", True),
        ]
    else:
        rows.append(Firing(group, "process group", "nothing: TORCH_NCCL_ASYNC_ERROR_HANDLING=0", False))
    if scheduler is not None:
        rows += [
            Firing(agent.shutdown_timeout, "torchrun shutdown", "SIGKILL to ranks that still run", True),
            Firing(scheduler.grace, "scheduler's grace", "SIGKILL to everything, torchrun included", True),
        ]
    return {each.timer: each for each in rows}


_NCCL = "NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT, process group, dump"
_RETRANSMISSION = "loss delay, retransmission timeout"
_ALL_PLANES = "retransmission timeout, slow collective, Timers.user_timeout, group's timeout"
_AGENT = "torchrun monitor, torchrun kill"
_JOIN, _STOP = "torchrun join, init_process_group", "torchrun shutdown, scheduler's grace"
_FAILURES: dict[str, dict[str, str]] = {  # by backend, or backend and transport: the timers that it starts
    "one plane of a host fails": {"mrc": _RETRANSMISSION, "nccl over mrc": _RETRANSMISSION, "nccl": _NCCL},
    "all planes of a host fail": {"mrc": _ALL_PLANES, "nccl": _NCCL},
    "a host loses power": {"mrc": f"{_ALL_PLANES}, torchrun keep-alive", "nccl": f"{_NCCL}, torchrun keep-alive"},
    "the process of a rank ends": {
        "mrc": f"{_AGENT}, process gone, group's timeout",
        "nccl": f"{_AGENT}, NCCL_IB_RETRY_CNT, process group, dump",
    },
    "a rank hangs in its own code": {"mrc": "slow collective, group's timeout", "nccl": "process group, dump"},
    "a CUDA or NCCL call hangs": {"nccl": "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"},
    "a rank never joins": {"mrc": _JOIN, "nccl": _JOIN},
    "the scheduler stops the job": {"mrc": _STOP, "nccl": _STOP},
}
