"""The outcome of a training job, and the cost of a restart.

A job stops at the first of its connections that ends in error: after an asynchronous error, all ranks can only abort
the communicator (NCCL user guide, "Error handling and communicator abort"). The job then restarts from its last
checkpoint, with all GPUs. The scenario defines the interval of checkpoints and the duration of a restart; without them
there is no cost.
"""

from typing import Any

from openmrc.base.amounts import ps_of
from openmrc.sim.loop.failures import ConnectionFailure
from openmrc.sim.loop.run import Results
from openmrc.sim.scenario.description import Restart
from openmrc.sim.workloads.joined import JoinedTraffic
from openmrc.units import NEVER, PS_PER_S, PS_PER_US

S_PER_HOUR = 3600


def outcome(work: JoinedTraffic, results: Results, gpus: int, restart: Restart | None) -> dict[str, Any]:
    """Return whether and when the job stopped, and the cost of a restart if the scenario defines it."""
    first = _first_error(work, results)
    return {
        "stopped": first is not None,
        "finished": bool((results.finished[work.marks["step"]] < NEVER).all()),
        "at_us": first.at / PS_PER_US if first is not None else None,
        "cause": first.cause if first is not None else None,
        "restart": _cost(restart, gpus) if first is not None and restart is not None else None,
    }


def _first_error(work: JoinedTraffic, results: Results) -> ConnectionFailure | None:
    """Return the first connection in error of a workload that has steps."""
    jobs = work.jobs()
    fatal = [each for each in results.failures if each.flow >= 0 and work.workload[each.flow] in jobs]
    return min(fatal, key=lambda each: each.at, default=None)


def _cost(restart: Restart, gpus: int) -> dict[str, float]:
    """Return the loss of all GPUs: the restart, and on average half of the work between two checkpoints."""
    takes, redone = ps_of(restart.takes) / PS_PER_S, ps_of(restart.checkpoint_every) / PS_PER_S / 2
    return {"takes_s": takes, "work_lost_s": redone, "gpu_hours": round(gpus * (takes + redone) / S_PER_HOUR, 3)}


def describe(job: dict[str, Any]) -> str:
    """Format the job of a summary as one line."""
    if not job["stopped"]:
        return "finished" if job["finished"] else "did not finish its steps"
    text = f"stopped at {job['at_us']:,.4g} us, {job['cause']}"
    return text + (f"; a restart costs {cost(job)}" if job["restart"] else "")


def cost(job: dict[str, Any]) -> str:
    """Return the cost of a restart as a table cell: `-` if there is none, or it is undefined."""
    return f"{job['restart']['gpu_hours']:,.4g} GPU hours" if job["restart"] else "-"
