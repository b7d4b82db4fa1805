"""A Ray cluster, for what `--on ray` spreads over it: the points of a sweep, the forecasts of a job."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from openmrc.errors import ConfigError, MrcError

ANSWER_S = 5.0  # within which the head of a cluster accepts a connection


def connect() -> Any:
    """Return the module `ray`, connected to the cluster that it finds, or to one of this machine alone."""
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ConfigError("--on ray: ray is not installed: pip install ray") from None
    if not ray.is_initialized():
        _refuse_dead()
        on_sigterm = signal.getsignal(signal.SIGTERM)
        ray.init(log_to_driver=False)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's own prints a stack and exits with 1
    return ray


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a wait for Ray at once: KeyboardInterrupt does, other exceptions of a handler do not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, stops = signal.getsignal(signal.SIGTERM), []

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        stops.append((number, frame))
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if stops and callable(before):
            before(*stops[0])
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_dead() -> None:
    """Refuse a cluster whose head does not answer; Ray would try for minutes, deaf to SIGTERM.

    Its address is in RAY_ADDRESS, or in the file that `ray start` leaves behind, also of a cluster that was killed.
    """
    current = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    address = os.environ.get("RAY_ADDRESS") or (current.read_text().strip() if current.is_file() else "")
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:
        return  # of this machine alone, or over a proxy
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except OSError as error:
        raise MrcError(
            f"--on ray: the cluster at {address} does not answer ({error.strerror or error}); start it, or forget it: "
            f"unset RAY_ADDRESS, remove {current}"
        ) from None


def given_up(error: BaseException, what_is_left: str) -> MrcError:
    """Return the error of a task: what it raised, or that Ray ran it again three times and lost it each time."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, MrcError):
        return cause
    if cause is not None:  # of several lines if the worker could not load the task; the last says why
        return MrcError(f"--on ray: a worker failed: {str(cause).strip().splitlines()[-1]}; {what_is_left}")
    return MrcError(
        f"--on ray: a worker failed repeatedly ({type(error).__name__}), probably for lack of memory; {what_is_left}"
    )
