"""Run all points of a sweep, on this machine or on a Ray cluster."""

import json
import multiprocessing
import signal
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from openmrc.base import cluster
from openmrc.errors import MrcError
from openmrc.sim.simulate import Status
from openmrc.sim.sweep import Point, Sweep, keep, refuse_plot, run_point
from openmrc.sim.warm import compiled

Summary = dict[str, Any]
Done = tuple[Point, Summary]
OnPoint = Callable[[int, int, list[float]], None]  # points done, points, shares done of those that run

PROGRESS_S = 10.0  # wall time between two reports of points that run
_shares: Any = None  # in a worker: the share done of each point of this call


def run(
    points: list[Point], folder: Path, on: str, processes: int, on_point: OnPoint, sweep: Sweep | None = None
) -> list[Summary]:
    """Run the points without a result; return the results of all points, in their order.

    `on`: a "ray" cluster, local "processes", or "inline" in this one. KeyboardInterrupt keeps complete results for the
    next call. If `sweep` plots a figure that summaries do not have, the first result raises ConfigError.
    """
    (folder / "points").mkdir(parents=True, exist_ok=True)
    missing = [point for point in points if not point.result(folder).exists()]
    done = len(points) - len(missing)
    on_point(done, len(points), [])

    def on_shares(shares: list[float]) -> None:
        on_point(done, len(points), shares)

    finished: Generator[Done, None, None]
    if on == "inline":
        finished = ((point, run_point(*_arguments(point))) for point in missing)
    else:
        finished = _on_ray(missing, on_shares) if on == "ray" else _in_processes(missing, processes, on_shares)
    with closing(finished):  # an early end terminates the runs in progress
        for point, result in finished:
            if result.get("summary", {}).get("interrupted"):
                raise KeyboardInterrupt  # in the worker; the point has no result yet
            keep(result, point.result(folder))
            if sweep is not None and "summary" in result:
                refuse_plot(sweep, result["summary"])
            done += 1
            on_point(done, len(points), [])
    return [json.loads(point.result(folder).read_text()) for point in points]


def count_done(points: list[Point], folder: Path) -> int:
    return sum(point.result(folder).exists() for point in points)


def _arguments(point: Point) -> tuple[bytes, dict[str, Any]]:
    return msgspec.json.encode(point.scenario), point.values


def _in_processes(
    points: list[Point], processes: int, on_shares: Callable[[list[float]], None]
) -> Generator[Done, None, None]:
    # Spawned, not forked: a fork of a process with threads may hang. Submitted one by one, so that few are lost.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    shares = context.Array("d", len(points), lock=False)
    with ProcessPoolExecutor(processes, context, initializer=_prepare_worker, initargs=(shares,)) as pool:
        waiting = list(enumerate(points))
        running: dict[Future[Summary], int] = {}
        try:
            _compile(pool, points)
            while waiting or running:
                while waiting and len(running) < processes:
                    number, point = waiting.pop(0)
                    running[pool.submit(_run_point, number, *_arguments(point))] = number
                ended = wait(running, timeout=PROGRESS_S, return_when=FIRST_COMPLETED).done
                for one in ended:
                    yield points[running.pop(one)], one.result()
                if not ended:
                    on_shares([shares[number] for number in running.values()])
        except BrokenProcessPool:
            raise MrcError(
                "a worker process was killed, probably for lack of memory; the points done are kept, and the same "
                "command runs the others (--processes 1 runs one at a time)"
            ) from None
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()  # leaving the pool would wait for results that are discarded
            raise


def _compile(pool: ProcessPoolExecutor, points: list[Point]) -> None:
    """Compile each transport in one process before all of them need it; cached code takes no time."""
    names = dict.fromkeys(point.scenario.transport.name for point in points)
    for made in [pool.submit(compiled, name) for name in names]:
        made.result()


def _prepare_worker(shares: Any) -> None:
    """Ignore Ctrl-C, which a terminal sends to every process: the parent ends the workers. Keep the table of shares."""
    global _shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _shares = shares


def _run_point(number: int, encoded: bytes, values: dict[str, Any]) -> Summary:
    """Run one point in a worker, and write the share done where the parent reads it."""

    def publish(status: Status) -> None:
        _shares[number] = min(1.0, max(status.share, status.finished / max(1, status.of)))

    return run_point(encoded, values, publish)


def _on_ray(points: list[Point], on_shares: Callable[[list[float]], None]) -> Generator[Done, None, None]:
    ray = cluster.connect()
    try:
        for name in dict.fromkeys(point.scenario.transport.name for point in points):
            with cluster.ended_by_sigterm():
                ray.get(ray.remote(compiled).remote(name))  # compiled first, at least on this node
        remote = ray.remote(run_point)
        running = {remote.remote(*_arguments(point)): point for point in points}
        while running:
            with cluster.ended_by_sigterm():
                ready, _ = ray.wait(list(running), num_returns=1, timeout=PROGRESS_S)
            for one in ready:
                yield running.pop(one), ray.get(one)
            if not ready:
                on_shares([])
    except ray.exceptions.RayError as error:  # Ray has run the task again three times before
        raise cluster.given_up(error, "the points done are kept, and the same command runs the others") from None
