"""Where the forecasts of a question run: one after the other in this process, or each as a task of a Ray cluster.

A forecast depends on its question and its seed alone, so both give the same numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from openmrc.base import cluster

Tasks = Sequence[partial[Any]]  # calls, which a cluster pickles
RunTasks = Callable[[Tasks], list[Any]]  # their results, in their order


def one_by_one(tasks: Tasks) -> list[Any]:
    """Run tasks here; each uses the threads of its question."""
    return [task() for task in tasks]


def on_ray(tasks: Tasks) -> list[Any]:
    """Run tasks on the cluster that Ray finds, each on a processor of its own."""
    ray = cluster.connect()
    remotes = {task.func: ray.remote(task.func) for task in tasks}
    try:
        with cluster.ended_by_sigterm():
            return [ray.get(one) for one in [remotes[task.func].remote(*task.args) for task in tasks]]
    except ray.exceptions.RayError as error:
        raise cluster.given_up(error, "nothing was written") from None


RUNNERS: Mapping[str, RunTasks] = {"threads": one_by_one, "ray": on_ray}
