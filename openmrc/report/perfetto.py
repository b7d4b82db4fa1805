"""A run as a timeline for ui.perfetto.dev and chrome://tracing ("Trace Event Format" of the Chromium project).

A process for each host, with collectives, computations and messages as slices, one for the job, and counters for
planes. Of a large run some hosts are shown, those of the slowest flows and others: viewers are slow with large files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from openmrc.core.arrays import Ints
from openmrc.report import curves
from openmrc.sim.results.summary import SimulationRun
from openmrc.sim.workloads.plan import UNLABELLED
from openmrc.units import NEVER, PS_PER_US

Event = dict[str, Any]

MOST_SLICES = 200_000  # about 40 MB
MOST_FAULTS = 5_000
JOB, PLANES, FIRST_HOST = 1, 2, 10  # processes
COLLECTIVES, COMPUTATIONS, MESSAGES = 1000, 2000, 3000  # first thread of each kind, by host
_TITLES = {COLLECTIVES: "collective", COMPUTATIONS: "compute", MESSAGES: "messages"}


def write(run: SimulationRun, path: Path) -> list[str]:
    """Write the timeline; return messages about the parts left out."""
    shown = _hosts_shown(run)
    notes = _notes(run, shown)
    about = {"name": run.name, "transport": run.transport, "seed": run.seed, "notes": notes}
    draft = path.with_name(path.name + ".part")
    with draft.open("wb") as file:
        file.write(b'{"displayTimeUnit":"ns","otherData":' + msgspec.json.encode(about))
        file.write(b',"traceEvents":[\n')
        for number, event in enumerate(_events(run, shown)):
            file.write((b",\n" if number else b"") + msgspec.json.encode(event))
        file.write(b"\n]}\n")
    draft.replace(path)
    return notes


def _events(run: SimulationRun, shown: _Shown) -> Iterator[Event]:
    yield from _process(JOB, "job", 0)
    yield from _steps(run)
    yield from _faults(run)
    yield from _process(PLANES, "planes", 1)
    yield from _plane_counters(run)
    for host in shown.hosts.tolist():
        yield from _process(FIRST_HOST + host, run.topology.name(host), FIRST_HOST + host)
    yield from _collectives(run, shown)
    yield from _computations(run, shown)
    yield from _messages(run, shown)


def _process(number: int, name: str, place: int) -> Iterator[Event]:
    yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": number, "name": "process_sort_index", "args": {"sort_index": place}}


def _thread(process: int, number: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "pid": process, "tid": number, "name": "thread_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "tid": number, "name": "thread_sort_index", "args": {"sort_index": number}}


@dataclass(frozen=True)
class _Shown:
    """The hosts and messages in the file."""

    hosts: Ints
    messages: Ints  # in order of source and start


def _hosts_shown(run: SimulationRun) -> _Shown:
    """Choose hosts until their messages fill the file; if one host has too many, some of its messages."""
    flows = run.work.moving
    flows = flows[run.results.started[flows] < NEVER]
    source = run.work.traffic.source[flows]
    count = np.bincount(source, minlength=run.topology.nics)
    hosts = np.arange(run.topology.nics)
    if len(flows) > MOST_SLICES or len(hosts) > MOST_SLICES // 64:
        ranked = _ranked(run, flows)
        fits = int(np.searchsorted(np.cumsum(count[ranked] + 64), MOST_SLICES))
        hosts = np.sort(ranked[: max(1, fits)])
    mine = flows[np.isin(source, hosts)]
    if len(mine) > MOST_SLICES:
        mine = mine[np.linspace(0, len(mine) - 1, MOST_SLICES).astype(np.int64)]
    order = np.lexsort((run.results.started[mine], run.work.traffic.source[mine]))
    return _Shown(hosts, mine[order])


def _ranked(run: SimulationRun, flows: Ints) -> Ints:
    """Return all hosts: sender and receiver of the slowest flow, then evenly spread ones at decreasing distance."""
    took = np.minimum(run.results.finished[flows], NEVER) - run.results.started[flows]
    slowest = flows[np.argsort(-took, kind="stable")[:8]]
    nics, order = run.topology.nics, [*run.work.traffic.source[slowest], *run.work.traffic.destination[slowest]]
    step = 1 << max(0, nics.bit_length() - 1)
    while step:
        order += range(0, nics, step)
        step //= 2
    return np.array(list(dict.fromkeys(map(int, order))), np.int64)


def _notes(run: SimulationRun, shown: _Shown) -> list[str]:
    notes = []
    messages = int((run.results.started[run.work.moving] < NEVER).sum())
    if len(shown.messages) < messages:
        notes.append(
            f"timeline: {len(shown.hosts):,} of {run.topology.nics:,} hosts and {len(shown.messages):,} of "
            f"{messages:,} messages are shown, to limit the size of the file"
        )
    if len(run.events) > MOST_FAULTS:
        notes.append(f"timeline: {MOST_FAULTS:,} of {len(run.events):,} faults are shown")
    return notes


def _steps(run: SimulationRun) -> Iterator[Event]:
    yield from _thread(JOB, 1, "steps")
    begun = 0
    for number, node in enumerate(run.work.marks.get("step", ()), 1):
        ended = int(run.results.finished[node])
        if ended < NEVER:
            yield _slice(JOB, 1, f"step {number}", begun, ended, {})
            begun = ended


def _faults(run: SimulationRun) -> Iterator[Event]:
    for event in run.events[:MOST_FAULTS]:
        place = {"ph": "i", "s": "g", "pid": JOB, "tid": 1, "ts": event.at / PS_PER_US}
        yield {**place, "name": event.text, "cat": "fault"}


def _slice(process: int, thread: int, name: str, begin: int, end: int, args: dict[str, Any], kind: str = "") -> Event:
    made: Event = {"ph": "X", "pid": process, "tid": thread, "name": name}
    made |= {"ts": begin / PS_PER_US, "dur": (end - begin) / PS_PER_US}
    return made | ({"cat": kind} if kind else {}) | ({"args": args} if args else {})


def _messages(run: SimulationRun, shown: _Shown) -> Iterator[Event]:
    traffic, results, work = run.work.traffic, run.results, run.work
    tracks = _Tracks(MESSAGES)
    for flow in shown.messages.tolist():
        begin, end = int(results.started[flow]), int(results.finished[flow])
        host, peer = int(traffic.source[flow]), run.topology.name(int(traffic.destination[flow]))
        args: dict[str, Any] = {"flow": flow, "bytes": int(traffic.size[flow]), "workload": _workload(run, flow)}
        if work.label[flow] != UNLABELLED:
            args["part"] = work.labels[work.label[flow]]
        if end >= NEVER:
            args["finished"] = "failed" if results.failed[flow] < NEVER else "no"
            end = min(int(results.failed[flow]), results.now)
        made, thread = tracks.place(FIRST_HOST + host, begin, end)
        yield from made
        yield _slice(FIRST_HOST + host, thread, f"to {peer}", begin, end, args, "message")


def _workload(run: SimulationRun, flow: int) -> str:
    return run.work.names[int(run.work.workload[flow])]


def _collectives(run: SimulationRun, shown: _Shown) -> Iterator[Event]:
    """Yield the collectives of each host, from its first message of each to its last."""
    work, results = run.work, run.results
    flows = work.moving[results.started[work.moving] < NEVER]
    part = np.where(work.label[flows] != UNLABELLED, work.label[flows], len(work.labels) + work.workload[flows])
    names = (*work.labels, *work.names)
    ends = np.minimum(results.finished[flows], results.now)
    hosts = np.concatenate([work.traffic.source[flows], work.traffic.destination[flows]])
    chosen = np.isin(hosts, shown.hosts)
    key = (hosts * len(names) + np.tile(part, 2))[chosen]
    found, place = np.unique(key, return_inverse=True)
    begin, end = np.full(len(found), NEVER), np.zeros(len(found), np.int64)
    np.minimum.at(begin, place, np.tile(results.started[flows], 2)[chosen])
    np.maximum.at(end, place, np.tile(ends, 2)[chosen])
    tracks = _Tracks(COLLECTIVES)
    for at in np.lexsort((begin, found // len(names)))[:MOST_SLICES].tolist():
        host, name = FIRST_HOST + int(found[at]) // len(names), names[int(found[at]) % len(names)]
        made, thread = tracks.place(host, int(begin[at]), int(end[at]))
        yield from made
        yield _slice(host, thread, name, int(begin[at]), int(end[at]), {}, "collective")


def _computations(run: SimulationRun, shown: _Shown) -> Iterator[Event]:
    traffic, results, work = run.work.traffic, run.results, run.work
    length = traffic.computed()
    rows = np.flatnonzero((traffic.size == 0) & (length > 0) & (length < NEVER) & (results.started < NEVER))
    rows = rows[np.isin(traffic.source[rows], shown.hosts)]
    tracks = _Tracks(COMPUTATIONS)
    for row in rows[np.lexsort((results.started[rows], traffic.source[rows]))][:MOST_SLICES].tolist():
        begin, host = int(results.started[row]), FIRST_HOST + int(traffic.source[row])
        made, thread = tracks.place(host, begin, begin + int(length[row]))
        yield from made
        name = work.labels[work.label[row]] if work.label[row] != UNLABELLED else _workload(run, row)
        yield _slice(host, thread, name, begin, begin + int(length[row]), {}, "compute")


class _Tracks:
    """Assigns slices to threads so that those of a thread do not overlap; slices come by process and beginning."""

    def __init__(self, first: int) -> None:
        self._first, self._process = first, -1
        self._busy: list[tuple[int, int]] = []  # end, thread
        self._free: list[int] = []
        self._count = 0

    def place(self, process: int, begin: int, end: int) -> tuple[list[Event], int]:
        """Return the events that name a new thread, if one is needed, and the thread."""
        if process != self._process:
            self._process, self._busy, self._free, self._count = process, [], [], 0
        while self._busy and self._busy[0][0] <= begin:
            heappush(self._free, heappop(self._busy)[1])
        named: list[Event] = []
        if not self._free:
            heappush(self._free, self._first + self._count)
            title = _TITLES[self._first] + (f" {self._count + 1}" if self._count else "")
            named = list(_thread(process, self._first + self._count, title))
            self._count += 1
        thread = heappop(self._free)
        heappush(self._busy, (end, thread))
        return named, thread


def _counter(name: str, at: float, unit: str, value: float) -> Event:
    return {"ph": "C", "pid": PLANES, "name": name, "ts": at, "args": {unit: round(value, 6)}}


def _plane_counters(run: SimulationRun) -> Iterator[Event]:
    samples = run.samples
    for line in curves.goodput(run, samples):
        for at, value in zip(line.x.tolist(), line.y.tolist(), strict=True):
            yield _counter(f"goodput, {line.label}", at, "Gb/s", value)
    for plane in sorted({group.plane for group in samples.groups}):
        mine = [at for at, group in enumerate(samples.groups) if group.plane == plane]
        longest = samples.values["queue_longest_ps"][:, mine].max(axis=1) / PS_PER_US
        for at, value in zip(curves.times(samples).tolist(), longest.tolist(), strict=True):
            yield _counter(f"longest queue, plane {plane}", at, "us", value)
