"""A Ray cluster, for what `--on ray` spreads over it: the points of a sweep, the forecasts of a job."""

from __future__ import annotations

from typing import Any

from openmrc.errors import ConfigError, MrcError


def connect() -> Any:
    """Return the module `ray`, connected to the cluster that it finds, or to one of this machine alone."""
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ConfigError("--on ray: ray is not installed: pip install ray") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    return ray


def given_up(error: BaseException, what_is_left: str) -> MrcError:
    """Return the error of a task that Ray has run again three times, and lost each time."""
    return MrcError(
        f"--on ray: a worker failed repeatedly ({type(error).__name__}), probably for lack of memory; {what_is_left}"
    )
