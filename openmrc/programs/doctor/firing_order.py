"""Which timers a failure starts, and in which order they fire.

A failure starts several timers at once, of several layers. The first that ends something decides what the user sees:
an error that names the lost rank, or one that only says that time is over. Times count from the failure, as if a
collective was running; those of the network are the latest, as packets leave all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from openmrc.programs.doctor.job_settings import INFINITE, JobSettings
from openmrc.programs.doctor.timer_table import ACK_TIMEOUT_UNIT_S, seconds_of


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
            Firing(
                _rto(settings),
                "retransmission timeout",
                "the same, for the rest",
                False,
            ),
        ]
    return [_ib_ack(settings), _ib_retries(settings), *_nccl_timeout(settings)]


def _rto(settings: JobSettings) -> float:
    return float(ACK_TIMEOUT_UNIT_S * 2**settings.timers.timeout)


def _all_planes(settings: JobSettings) -> list[Firing]:
    if settings.backend == "nccl":
        return [_ib_ack(settings), _ib_retries(settings), *_nccl_timeout(settings)]
    return [
        Firing(
            _rto(settings),
            "retransmission timeout",
            "probes and retransmissions",
            False,
        ),
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
