"""Make thirty slow steps, each for a known cause, and count which of them `mrc train explain` names.

Four ranks of this machine train in two groups, one over shared memory and one over loopback sockets. Mark: 28 named
rightly: the cause, the ranks or planes, and of a late rank the reason. Prints the table of causes made and named.
"""

from __future__ import annotations

import argparse
import collections
import gc
import importlib
import io
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.train.ranks import run
from openmrc.train.execution.explain import Reason, SlowCause

RANKS, PLANES, MARK = 4, 4, 28
LONG = 0.6  # s that a cause lasts
USUAL, LARGE = 1 << 16, 48 << 20  # bytes of a usual step, and of the one that is slow for its size
STEPS_BETWEEN = 4
PAGES = 6000  # read from the disk one by one


@dataclass
class Job:
    """What a cause may use."""

    rank: int
    local: Any  # the group over shared memory
    wire: Any  # the group over sockets
    folder: Path
    processes: list[int]  # of all ranks


Act = Callable[[Job], None]


@dataclass(frozen=True)
class Case:
    """One slow step: what ranks do before it, or instead of a usual all-reduce, and what is to be named."""

    name: str
    wire: bool
    cause: SlowCause
    ranks: tuple[int, ...] = ()
    act: Act = lambda job: None  # of `ranks`, before the step
    reason: Reason = Reason.UNKNOWN
    planes: tuple[int, ...] = ()
    faults: str = ""  # of what arrives at `at`
    at: tuple[int, ...] = (1,)
    size: int = USUAL
    calls: int = 1
    meanwhile: Act | None = None  # of rank 0, before it joins


def idle(job: Job) -> None:
    time.sleep(LONG)


def compute(job: Job) -> None:
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        sum(range(10_000))


def load(workers: int) -> Act:
    def act(job: Job) -> None:
        from torch.utils.data import DataLoader

        for _ in DataLoader(SlowSamples(), batch_size=1, num_workers=workers):
            pass

    return act


class SlowSamples:
    """A data set that is slow to read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        time.sleep(LONG / 4)
        return index


class SlowDisk(io.BytesIO):
    """A file on a disk that is slow to write."""

    def write(self, data: Any) -> int:
        time.sleep(0.003)
        return super().write(data)


def save(job: Job) -> None:
    import torch

    end = time.monotonic() + LONG
    while time.monotonic() < end:
        torch.save({str(n): torch.ones(10) for n in range(10)}, SlowDisk())


def collect(job: Job) -> None:
    end = time.monotonic() + LONG
    kept: list[Any] = [[n] for n in range(300_000)]
    while time.monotonic() < end:
        gc.collect()
    del kept


def read_back(job: Job) -> None:
    """Touch memory that was moved to a disk; a file stands in for the swap."""
    with tempfile.TemporaryFile(dir=job.folder) as file:
        file.write(os.urandom(PAGES * mmap.PAGESIZE))
        file.flush()
        os.fsync(file.fileno())
        with mmap.mmap(file.fileno(), 0) as memory:
            memory.madvise(mmap.MADV_RANDOM)
            end = time.monotonic() + LONG
            while time.monotonic() < end:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                for page in range(PAGES):
                    memory[page * mmap.PAGESIZE]
                memory.madvise(mmap.MADV_DONTNEED)


def stop(job: Job) -> None:
    process = os.getpid()
    subprocess.Popen(["sh", "-c", f"sleep {LONG}; kill -CONT {process}"])
    os.kill(process, signal.SIGSTOP)


def stop_within(rank: int) -> Act:
    """Stop another rank, which waits in the collective, for a time."""

    def act(job: Job) -> None:
        time.sleep(0.1)
        os.kill(job.processes[rank], signal.SIGSTOP)
        subprocess.Popen(["sh", "-c", f"sleep {LONG}; kill -CONT {job.processes[rank]}"])

    return act


@contextmanager
def crowded() -> Iterator[None]:
    """Let this process share one core with others."""
    before = os.sched_getaffinity(0)
    core = {min(before)}
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(5)]
    for each in (0, *(hog.pid for hog in hogs)):
        os.sched_setaffinity(each, core)
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        os.sched_setaffinity(0, before)


def compute_crowded(job: Job) -> None:
    with crowded():
        used = time.thread_time()
        while time.thread_time() - used < LONG / 4:
            sum(range(10_000))


def flaps(plane: int) -> str:
    return "; ".join(f"at: {250 * n}ms, for: 120ms, down: plane {plane}" for n in range(4))


def late(name: str, wire: bool, rank: int, act: Act, reason: Reason) -> Case:
    return Case(name, wire, SlowCause.LATE, (rank,), act, reason)


def network(name: str, planes: tuple[int, ...], faults: str, at: tuple[int, ...] = (1,), calls: int = 12) -> Case:
    return Case(name, True, SlowCause.NETWORK, planes=planes, faults=faults, at=at, size=8 << 20, calls=calls)


CASES = (
    late("late rank", False, 1, idle, Reason.WAITING),
    late("late rank", True, 3, idle, Reason.WAITING),
    Case("two late ranks", True, SlowCause.LATE, (1, 2), idle, Reason.WAITING),
    late("long computation", False, 2, compute, Reason.COMPUTING),
    late("long computation", True, 0, compute, Reason.COMPUTING),
    Case("stopped rank", False, SlowCause.STOPPED, (1,), stop),
    Case("stopped rank", True, SlowCause.STOPPED, (2,), stop),
    Case("stopped while it waits", False, SlowCause.STOPPED, (1,), meanwhile=stop_within(1)),
    Case("stopped while it waits", True, SlowCause.STOPPED, (3,), meanwhile=stop_within(3)),
    Case("stopped host", True, SlowCause.STOPPED, (2, 3), stop),
    late("slow core", False, 1, compute_crowded, Reason.BUSY),
    late("slow core", True, 3, compute_crowded, Reason.BUSY),
    Case("large tensor", False, SlowCause.TRANSFER, size=LARGE),
    Case("large tensor", True, SlowCause.TRANSFER, size=LARGE),
    network("pulled cable", (1,), "for: 1s, down: plane 1"),
    network("pulled cable", (3,), "for: 1s, down: plane 3", at=(0,)),
    network("flapping cable", (2,), flaps(2)),
    network("flapping cable", (0,), flaps(0), at=(3,)),
    network("1 % loss", (0, 1, 2, 3), "for: 3s, loss: 1%", at=(0, 1, 2, 3)),
    network("10 % loss on one plane", (2,), "for: 3s, loss: 10%, on: plane 2", at=(0, 1, 2, 3)),
    network("slow plane", (3,), "for: 3s, rate: 20Mbps, on: plane 3", at=(0, 1)),
    network("slow plane", (0,), "for: 3s, rate: 50Mbps, on: plane 0", at=(2,)),
    late("swapped memory", False, 1, read_back, Reason.READS),
    late("garbage collection", False, 2, collect, Reason.GARBAGE),
    late("garbage collection", True, 0, collect, Reason.GARBAGE),
    late("data loader", False, 3, load(0), Reason.LOADER),
    late("data loader, of a worker", True, 1, load(1), Reason.LOADER),
    late("checkpoint", False, 0, save, Reason.CHECKPOINT),
    Case("late rank, pulled cable", True, SlowCause.LATE, (1,), idle, Reason.WAITING, (2,), "for: 2s, down: plane 2",
         (0,), 8 << 20, 2),
    Case("checkpoint, data loader", False, SlowCause.LATE, (0, 2), lambda job: (load(0), save)[job.rank == 0](job)),
)  # fmt: skip


def train(rank: int, size: int, address: str, folder: Path) -> None:
    """Make every case, each at the step of its number times STEPS_BETWEEN, and write the records."""
    import numpy as np

    from openmrc.train.group import Group
    from openmrc.train.links.devices import open_context
    from openmrc.train.links.store import TcpStore

    importlib.import_module("torch.utils.data")  # before a case does, for it takes as long as a cause
    gc.disable()  # but for what the cases collect
    host, port = address.split(":")
    store = TcpStore(host, int(port), serve=rank == 0)
    context = open_context(str(PLANES), 2 * size)
    local = Group(store, rank, size, context=context, name="local", shared_memory=True)
    wire = Group(store, rank, size, context=context, name="wire")
    pids = np.zeros(size, np.int64)
    local.all_gather(pids, np.array([os.getpid()]))
    job = Job(rank, local, wire, folder, pids.tolist())
    for number, case in enumerate(CASES):
        group = wire if case.wire else local
        for step in range(number * STEPS_BETWEEN, (number + 1) * STEPS_BETWEEN):
            is_slow = step % STEPS_BETWEEN == STEPS_BETWEEN - 1
            _step(job, group, case if is_slow else None, step)
        time.sleep(0.2)
        if case.faults:
            context.impair("clear: all")
            time.sleep(0.5)
        group.barrier()
    for each in (local, wire):
        each.recorder.dump(folder / f"{each.name}-rank{rank}.json")
        each.barrier()
        each.close()
    context.close()


def _step(job: Job, group: Any, case: Case | None, step: int) -> None:
    import numpy as np

    array = np.ones((case.size if case else USUAL) // 4, np.float32)
    group.barrier()
    group.step(step)
    if case is not None:
        if case.faults and job.rank in case.at:
            group.context.impair(case.faults)
        if job.rank in case.ranks and case.meanwhile is None:
            case.act(job)
        if job.rank == 0 and case.meanwhile is not None:
            case.meanwhile(job)
    for _ in range(case.calls if case else 1):
        group.all_reduce(array)


def named(folder: Path, number: int, case: Case) -> tuple[str, str]:
    """Return what the command names as the cause of a case, the case if it is right, and its text."""
    step = (number + 1) * STEPS_BETWEEN - 1
    files = map(str, folder.glob(f"{'wire' if case.wire else 'local'}-*.json"))
    command = [sys.executable, "-m", "openmrc.programs.main", "train", "explain", *files, "--step", str(step)]
    printed = subprocess.run([*command, "-n", "100", "--json"], check=True, capture_output=True, text=True).stdout
    report = json.loads(printed)
    findings = [found for each in report["steps"] for found in each["findings"]]
    findings.sort(key=lambda found: -float(found["seconds"]))
    calls = {(found["rank"], found["sequence"]) for found in findings}
    outages = {
        event["plane"]
        for each in report["ranks"]
        for event in each["plane_events"]
        if (each["rank"], event["sequence"]) in calls
    }
    found = findings[0]
    if case.cause == SlowCause.NETWORK:  # an outage may cost less than what other programs of this machine do
        found = next((each for each in findings[: 3 * RANKS] if _is_right(each, case)), found)
    if _is_right(found, case) or (case.cause == SlowCause.NETWORK and outages >= set(case.planes)):
        return case.name, str(found["text"])
    ranks = f" {', '.join(map(str, found['ranks']))}" if found["ranks"] else ""
    return f"{found['cause']}{ranks}{', ' if found['reason'] else ''}{found['reason']}", str(found["text"])


def _is_right(found: dict[str, Any], case: Case) -> bool:
    """Whether a finding has the cause, ranks, planes and reason of a case."""
    return (
        found["cause"] == case.cause
        and set(found["ranks"]) == set(case.ranks)
        and all(f"plane {plane}" in found["text"] for plane in case.planes)
        and (case.reason == Reason.UNKNOWN or found["reason"] == case.reason)
    )


def main() -> None:
    """Print a line for every case, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep the records there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as made:
        folder = options.folder or Path(made)
        folder.mkdir(exist_ok=True)
        run(RANKS, train, folder)
        table: dict[str, collections.Counter[str]] = {}
        for number, case in enumerate(CASES):
            label, text = named(folder, number, case)
            table.setdefault(case.name, collections.Counter())[label] += 1
            print(f"{'right' if label == case.name else 'WRONG'}: {case.name}: {text}", flush=True)
    print("\n| made | times | named |\n|---|---|---|")
    for name, labels in table.items():
        text = ", ".join(f"{label} {count}" for label, count in labels.items())
        print(f"| {name} | {labels.total()} | {text} |")
    right = sum(labels[name] for name, labels in table.items())
    print(f"\n{right} of {len(CASES)} named rightly: {'ok' if right >= MARK else 'missed'}", flush=True)


if __name__ == "__main__":
    main()
