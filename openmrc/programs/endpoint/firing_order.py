"""Which timers a failure starts, and in which order they fire: the first to end something is what the user sees.

Times count from the failure, as if a collective was running; those of the network are the latest, as packets leave all
the time.
"""

from collections.abc import Callable, Iterator
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
    return tuple(
        FailureOrder(failure, tuple(sorted(firings(settings), key=lambda each: each.seconds)))
        for failure, firings in _FAILURES.items()
        if firings(settings)
    )


def _one_plane(settings: JobSettings) -> list[Firing]:
    if settings.transport == "mrc":
        return [
            Firing(seconds_of("loss delay"), "loss delay", "the lost packets leave on other paths", False),
            Firing(_rto(settings), "retransmission timeout", "the same, for the rest", False),
        ]
    return [_ib_ack(settings), _ib_retries(settings), *_nccl_timeout(settings)]


def _rto(settings: JobSettings) -> float:
    return float(ACK_TIMEOUT_UNIT_S * 2**settings.timers.timeout)


def _all_planes(settings: JobSettings) -> list[Firing]:
    if settings.backend == "nccl":
        return [_ib_ack(settings), _ib_retries(settings), *_nccl_timeout(settings)]
    return [
        Firing(_rto(settings), "retransmission timeout", "probes and retransmissions", False),
        _slow(settings),
        Firing(settings.user_timeout, "Timers.user_timeout", "RankLostError at every rank, naming the rank", True),
        _group(settings),
    ]


def _stuck_rank(settings: JobSettings) -> list[Firing]:
    return _nccl_timeout(settings) if settings.backend == "nccl" else [_slow(settings), _group(settings)]


def _dead_process(settings: JobSettings) -> list[Firing]:
    agent = settings.torchrun
    monitor = Firing(agent.monitor_interval, "torchrun monitor", "SIGTERM to the other ranks of its host", True)
    kill = Firing(agent.monitor_interval + agent.shutdown_timeout, "torchrun shutdown", "SIGKILL to them", True)
    if settings.backend == "nccl":
        return [monitor, kill, _ib_retries(settings), *_nccl_timeout(settings)]
    gone = seconds_of("process gone") + seconds_of("check of timeouts")
    return [monitor, kill, Firing(gone, "process gone", "RankLostError at every other rank", True), _group(settings)]


def _dead_host(settings: JobSettings) -> list[Firing]:
    agent = settings.torchrun
    seconds = agent.keep_alive_interval * agent.keep_alive_max_attempt
    alive = Firing(seconds, "torchrun keep-alive", "the host leaves the rendezvous, for the next restart", False)
    return [*_all_planes(settings), alive]


def _missing_rank(settings: JobSettings) -> list[Firing]:
    return [
        Firing(settings.torchrun.join_timeout, "torchrun join", "RendezvousTimeoutError: hosts are missing", True),
        Firing(settings.group_timeout, "init_process_group", "an error that names missing ranks", True),
    ]


def _hanging_call(settings: JobSettings) -> list[Firing]:
    if settings.backend != "nccl":
        return []
    return [Firing(settings.heartbeat, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "torch ends the process", True)]


def _stopped_job(settings: JobSettings) -> list[Firing]:
    if settings.scheduler is None:
        return []
    return [
        Firing(settings.torchrun.shutdown_timeout, "torchrun shutdown", "SIGKILL to ranks that still run", True),
        Firing(settings.scheduler.grace, "scheduler's grace", "SIGKILL to everything, torchrun included", True),
    ]


def _slow(settings: JobSettings) -> Firing:
    seconds = min(seconds_of("slow collective"), settings.group_timeout / 3)
    return Firing(seconds, "slow collective", "ranks say what they wait for", False)


def _group(settings: JobSettings) -> Firing:
    return Firing(settings.group_timeout, "group's timeout", "CollectiveTimeoutError: the group ends", True)


def _ib_ack(settings: JobSettings) -> Firing:
    return Firing(settings.ib_timeout, "NCCL_IB_TIMEOUT", "retransmission", False)


def _ib_retries(settings: JobSettings) -> Firing:
    return Firing(settings.ib_retries, "NCCL_IB_RETRY_CNT", "RETRY_EXC_ERR: NCCL fails the collective", True)


def _nccl_timeout(settings: JobSettings) -> list[Firing]:
    """Return what torch does about a collective of NCCL that does not end: dump, then end the process."""
    timeout, ends = settings.group_timeout, settings.watchdog_ends_process
    if not ends:
        return [Firing(timeout, "process group, nccl", "nothing: TORCH_NCCL_ASYNC_ERROR_HANDLING=0", False)]
    found = [Firing(timeout, "process group, nccl", "the watchdog sees the timeout, ranks dump", False)]
    return [*found, Firing(timeout + settings.dump, "dump", "torch ends the process", True)]


_FAILURES: dict[str, Callable[[JobSettings], list[Firing]]] = {
    "one plane of a host fails": _one_plane,
    "all planes of a host fail": _all_planes,
    "a host loses power": _dead_host,
    "the process of a rank ends": _dead_process,
    "a rank hangs in its own code": _stuck_rank,
    "a CUDA or NCCL call hangs": _hanging_call,
    "a rank never joins": _missing_rank,
    "the scheduler stops the job": _stopped_job,
}
