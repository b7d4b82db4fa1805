"""Compile the engine for all commands in advance: `mrc warm`, `python -m openmrc.programs.warm`.

Several jobs, each in a process of its own, side by side. Those of the live endpoint come first: `mrc demo` needs them.
"""

import importlib
import os
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Self

from openmrc.core.cache import choose_entry
from openmrc.errors import MrcError
from openmrc.programs.outcome import Json, give


def warm(as_json: Json = False) -> None:
    """Compile the live endpoint and the simulator; later runs load them in a second.

    Takes one to three minutes after an installation or a change of the sources.
    """
    begun = time.monotonic()
    compile_all()
    seconds = round(time.monotonic() - begun, 1)
    give({"ok": True, "seconds": seconds}, as_json, f"OK compiled and cached in {seconds:.1f} s")


class CompileJob(NamedTuple):
    world: str
    entry: str = ""  # as for `choose_entry`; "": all that is not in the cache
    after: tuple[str, ...] = ()  # entries of the same world that must be in the cache before


# In this order no processor of two waits for the other: the times are about 5 : 4 : 7 : 2 : 4.
JOBS = (
    CompileJob("live", "take_in"),
    CompileJob("live", "send_out"),
    CompileJob("sim", "run_window"),
    CompileJob("live", after=("take_in", "send_out")),
    CompileJob("sim", "!run_window"),
    CompileJob("planner"),
)
NICE = 5  # of the jobs of the simulator: a demo moves data meanwhile
LAST = {"live": "move", "sim": "add_up", "planner": "run_jobs"}  # entries that the last job of a world compiles last


class Compilation:
    """Compiles what is not in the cache, in processes that end with this block at the latest."""

    def __init__(self, *worlds: str) -> None:
        """Start the jobs of these worlds, as many at a time as there are processors."""
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_over = False
        self._results: dict[CompileJob, Future[bool]] = {}
        ready = {world: _is_ready(world) for world in worlds}
        for job in JOBS:
            if not ready.get(job.world, True):
                self._results[job] = self._pool.submit(self._run, job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for process in self._processes:
            process.terminate()
        self._pool.shutdown(cancel_futures=True)

    @property
    def is_running(self) -> bool:
        """Whether something is still being compiled."""
        return not all(result.done() for result in self._results.values())

    def wait_for(self, world: str) -> None:
        """Return when all entries of a world are compiled; MrcError if one fails."""
        failed = [job for job, result in self._results.items() if job.world == world and not result.result()]
        if failed:
            raise MrcError(f"openmrc.{world}: could not be compiled, see above")

    def _run(self, job: CompileJob) -> bool:
        for earlier in job.after:
            if not self._results[CompileJob(job.world, earlier)].result():
                return False
        if self._is_over:
            return False
        process = subprocess.Popen([sys.executable, "-m", "openmrc.programs.warm", job.world, job.entry])
        self._processes.append(process)
        return process.wait() == 0


def _is_ready(world: str) -> bool:
    from openmrc.core.jit import is_ready

    names = [job.entry for job in JOBS if job.world == world and job.entry.isidentifier()]
    return all(is_ready(world, name) for name in (*names, LAST[world]))


def main() -> None:
    """Compile every world, or do the job named on the command line."""
    if len(sys.argv) > 1:
        world, entry = sys.argv[1:]
        os.nice(0 if world == "live" else NICE)
        choose_entry(entry)
        importlib.import_module(f"openmrc.{world}.warm").warm(*filter(None, [entry]))
        sys.stderr.flush()
        os._exit(0)  # to free what the compiler made would take a second and more, for which the next job waits
    begun = time.monotonic()
    compile_all()
    sys.stderr.write(f"openmrc: the engine is ready ({time.monotonic() - begun:.0f} s)\n")


def compile_all() -> None:
    """Compile every world; MrcError if one fails."""
    with Compilation(*LAST) as compilation:
        for world in LAST:
            compilation.wait_for(world)


if __name__ == "__main__":
    main()
