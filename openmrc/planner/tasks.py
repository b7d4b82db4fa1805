"""Where the forecasts of a question run: one after the other in this process, or each as a task of a Ray cluster.

A forecast depends on its question and its seed alone, so both give the same numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmrc.base import cluster


@dataclass(frozen=True)
class JobTask:
    """A function and its arguments, which a cluster pickles."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


RunTasks = Callable[[Sequence[JobTask]], list[Any]]  # the results, in the order of the tasks


def one_by_one(tasks: Sequence[JobTask]) -> list[Any]:
    """Run tasks here; each uses the threads of its question."""
    return [task.function(*task.arguments) for task in tasks]


def on_ray(tasks: Sequence[JobTask]) -> list[Any]:
    """Run tasks on the cluster that Ray finds, each on a processor of its own."""
    ray = cluster.connect()
    remotes = {task.function: ray.remote(task.function) for task in tasks}
    try:
        with cluster.ended_by_sigterm():
            return [ray.get(one) for one in [remotes[task.function].remote(*task.arguments) for task in tasks]]
    except ray.exceptions.RayError as error:
        raise cluster.given_up(error, "nothing was written") from None


RUNNERS: Mapping[str, RunTasks] = {"threads": one_by_one, "ray": on_ray}
