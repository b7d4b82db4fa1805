"""Settings of a job that decide how long it waits: from the environment, and from a file for what no variable holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from openmrc.base.documents import composed, constructed, read_text
from openmrc.errors import ConfigError
from openmrc.programs.endpoint.timer_table import seconds_of

INFINITE = float("inf")
Seconds = Annotated[float, msgspec.Meta(ge=0)]
KNOWN_VARIABLES = frozenset(
    {
        "MRC_BIND",
        "MRC_CTL",
        "MRC_EMULATE",
        "MRC_EVENT_LOG",
        "MRC_FAULT_STEPS",
        "MRC_LOG",
        "MRC_METRICS",
        "MRC_NIC",
        "MRC_PLANES",
        "MRC_POLL_US",
        "MRC_PORT",
        "MRC_RECORDER",
        "MRC_RECORDER_DIR",
        "MRC_SHARED_MEMORY",
        "MRC_TOKEN",
    }
)


class QueuePairTimers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of `openmrc.train.Timers` that a program sets."""

    timeout: Annotated[int, msgspec.Meta(ge=0, le=24)] = 14  # 1.024 us x 2**timeout
    linear_count: int = 7
    exponential_count: int = 7
    user_timeout: Seconds | None = None  # s; None: 20, at most half the group's timeout


class Torchrun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of torchrun, in seconds."""

    monitor_interval: Seconds = 0.1
    shutdown_timeout: Seconds = 30.0
    join_timeout: Seconds = 600.0  # --rdzv-conf
    keep_alive_interval: Seconds = 5.0
    keep_alive_max_attempt: int = 3


class SchedulerLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the job scheduler allows, in seconds."""

    grace: Seconds = 30.0  # from SIGTERM to SIGKILL: KillWait, terminationGracePeriodSeconds
    time_limit: Seconds = INFINITE


class JobSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job: which backend moves its data, and every timeout that can end it."""

    backend: Literal["mrc", "nccl"] = "mrc"
    transport: Literal["mrc", "ib"] = "mrc"  # of nccl: libmrc through `mrc run`, or an RDMA NIC
    init_process_group_timeout: Seconds | None = None  # s; None: torch's default for the backend
    store_timeout: Seconds = 300.0  # s
    longest_step: Seconds | None = None  # s that a rank may compute, load or save between two collectives
    timers: QueuePairTimers = QueuePairTimers()
    torchrun: Torchrun = Torchrun()
    scheduler: SchedulerLimits | None = None  # None: nothing stops the job
    environment: dict[str, str] = {}  # in addition to, and instead of, that of `mrc doctor`

    @property
    def group_timeout(self) -> float:
        """Return the timeout (s) of the process group."""
        if self.init_process_group_timeout is not None:
            return self.init_process_group_timeout
        return seconds_of("process group, nccl" if self.backend == "nccl" else "process group, others")

    @property
    def user_timeout(self) -> float:
        """Return how long (s) a rank of backend mrc may make no progress."""
        if self.timers.user_timeout is not None:
            return self.timers.user_timeout
        return min(seconds_of("rank lost"), self.group_timeout / 2)

    @property
    def ib_timeout(self) -> float:
        """Return how long (s) a queue pair of NCCL waits for an acknowledgement."""
        exponent = self.integer("NCCL_IB_TIMEOUT", 20, 31)
        return INFINITE if exponent == 0 else 4.096e-6 * 2**exponent

    @property
    def ib_retries(self) -> float:
        """Return how long (s) a queue pair of NCCL may go without an acknowledgement."""
        return self.ib_timeout * (self.integer("NCCL_IB_RETRY_CNT", 7, 7) + 1)

    @property
    def heartbeat(self) -> float:
        """Return how long (s) the watchdog of torch's NCCL backend may hang."""
        if self.integer("TORCH_NCCL_ENABLE_MONITORING", 1, 1) == 0:
            return INFINITE
        return float(self.integer("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", 480, 10**9))

    @property
    def dump(self) -> float:
        """Return how long (s) torch waits for the flight recorder before it ends the process; 0: no dump."""
        if self.integer("TORCH_NCCL_DUMP_ON_TIMEOUT", 1, 1) == 0:
            return 0.0
        return self.integer("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", 15_000, 10**9) / 1000

    @property
    def watchdog_ends_process(self) -> bool:
        """Return whether torch's watchdog acts when a collective of NCCL fails or times out."""
        return self.integer("TORCH_NCCL_ASYNC_ERROR_HANDLING", 3, 3) != 0

    def integer(self, name: str, default: int, most: int) -> int:
        """Return a variable as a number in 0..most; ConfigError names it."""
        text = self.environment.get(name, "")
        if not text:
            return default
        if name.startswith("TORCH_") and text.lower() in ("y", "yes", "t", "true", "n", "no", "f", "false"):
            return int(text.lower()[0] in "yt")
        if not text.isascii() or not text.isdigit() or int(text) > most:
            raise ConfigError(f"{name}: {text!r} is not a number in 0..{most}")
        return int(text)


def read_settings(environment: Mapping[str, str], file: Path | None) -> JobSettings:
    """Return the settings of a job; the file's win over the environment. ConfigError names what is wrong."""
    given = _document(file) if file is not None else {}
    variables = dict(environment)
    extra = given.get("environment", {})
    if isinstance(extra, dict):
        variables |= {str(name): str(value) for name, value in extra.items()}
    settings = {**_guessed(variables), **given, "environment": variables}
    try:
        return msgspec.convert(settings, JobSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file or 'environment'}: {error}") from None


def _document(file: Path) -> dict[str, Any]:
    text = read_text(file)
    document = constructed(composed(text, str(file)), text, str(file))
    if not isinstance(document, dict):
        raise ConfigError(f"{file}: expected names and values, such as `init_process_group_timeout: 1800`")
    return document


def _guessed(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what the environment says of backend, transport, torchrun and scheduler."""
    nccl = any(name.startswith(("NCCL_IB_", "TORCH_NCCL_")) for name in variables)
    through_libmrc = "libmrc" in variables.get("LD_PRELOAD", "") or "MRC_PLANES" in variables
    guessed: dict[str, Any] = {
        "backend": "nccl" if nccl else "mrc",
        "transport": "mrc" if through_libmrc or not nccl else "ib",
    }
    if "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" in variables:
        guessed["torchrun"] = {"shutdown_timeout": _seconds(variables, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")}
    if "SLURM_JOB_START_TIME" in variables and "SLURM_JOB_END_TIME" in variables:
        limit = _seconds(variables, "SLURM_JOB_END_TIME") - _seconds(variables, "SLURM_JOB_START_TIME")
        guessed["scheduler"] = {"time_limit": max(limit, 0.0)}
    return guessed


def _seconds(variables: Mapping[str, str], name: str) -> float:
    try:
        return float(variables[name])
    except ValueError:
        raise ConfigError(f"{name}: {variables[name]!r} is not a number of seconds") from None
