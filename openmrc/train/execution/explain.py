"""Explain slow steps from flight recordings: which collective was slow, and which rank or plane caused it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from openmrc.errors import ConfigError
from openmrc.train.execution.recorder import (
    ALWAYS,
    DIRECTORY_VARIABLE,
    WHEN_VARIABLE,
    CollectiveRecord,
    FlightRecording,
)

_LARGEST_FILE = 1 << 30  # bytes
_SHOWN_SHARE = 0.05  # of the slowest collective's time, above which other collectives of the step are shown
_LATE_SHARE = 0.5  # of a collective's time, above which a late or a stopped rank counts as its cause


Stopped = dict[tuple[str, int], tuple[int, float]]  # by group and sequence: a rank that did not run, and for how long


class SlowCollective(msgspec.Struct):
    """One slow collective and its cause."""

    rank: int
    sequence: int
    call: str
    seconds: float
    usual: float  # median seconds of the same call at the same rank
    cause: str  # stopped rank, late rank, network, transfer, failed
    text: str


class StepReport(msgspec.Struct):
    """One step at one rank."""

    step: int
    rank: int
    seconds: float  # from the start of its first collective to the end of its last
    usual: float  # median of the rank's steps
    findings: list[SlowCollective]


class PlaneOutage(msgspec.Struct):
    """One time in which a plane carried no data, and the collective that it delayed most."""

    plane: int
    state: str  # down, silent
    began: float  # seconds since the rank's first recorded collective
    seconds: float | None  # how long; None: until the end of the recording
    lost: int  # packets
    sequence: int | None  # of that collective; None: no collective was in progress
    took: float | None  # seconds
    usual: float | None  # median seconds of the same call at the same rank


class RankReport(msgspec.Struct):
    """The whole run at one rank."""

    rank: int
    error: str  # that ended the group; empty: none
    local_ranks: list[int]  # reached through shared memory
    plane_events: list[PlaneOutage]


class RunReport(msgspec.Struct):
    """What `mrc train explain --json` prints: what planes did, then the slow steps."""

    ranks: list[RankReport]
    steps: list[StepReport]


def read(path: Path) -> FlightRecording:
    """Read a file written by `Recorder.dump`; ConfigError if it is invalid."""
    if path.stat().st_size > _LARGEST_FILE:
        raise ConfigError(f"{path}: {path.stat().st_size:,} bytes, the limit is {_LARGEST_FILE:,}")
    try:
        return msgspec.json.decode(path.read_bytes(), type=FlightRecording)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a flight recording: {error}") from error


def explain(recordings: Sequence[FlightRecording], step: int | None = None, most: int = 5) -> list[StepReport]:
    """Return up to `most` slowest steps of every rank, or only `step`, with their slowest collectives.

    Without calls of `Group.step` all collectives belong to step -1. Raises ConfigError if `step` was not recorded.
    """
    reports = []
    stopped = _stopped(recordings)
    for recording in recordings:
        steps = _by_step(recording.entries)
        lengths = {number: _length(entries) for number, entries in steps.items()}
        usual = median(lengths.values()) if lengths else 0.0
        chosen = [step] if step is not None else sorted(lengths, key=lambda number: -lengths[number])[:most]
        for number in chosen:
            if number not in steps:
                raise ConfigError(f"step {number}: rank {recording.rank} recorded {_range_text(steps)}")
            findings = _findings(recording, steps[number], most, stopped)
            reports.append(StepReport(number, recording.rank, lengths[number], usual, findings))
    return reports


def overview(recording: FlightRecording) -> RankReport:
    """Return what is to be said of the whole run: its error, ranks in shared memory, and what planes did."""
    start = min((entry.begun_at for entry in recording.entries), default=recording.written_at)
    outages = []
    for event in recording.plane_events:
        end = event.ended_at or recording.written_at
        seconds = end - event.began_at if event.ended_at else None
        cost = _most_delayed(recording.entries, event.began_at, end)
        outages.append(PlaneOutage(event.plane, event.state, event.began_at - start, seconds, event.lost, *cost))
    return RankReport(recording.rank, recording.error, recording.local_ranks, outages)


def _most_delayed(entries: Sequence[CollectiveRecord], begin: float, end: float) -> tuple[Any, Any, Any]:
    """Return (sequence, seconds, usual seconds) of the collective in a time that exceeded its median most, or Nones."""
    usual = {call: median(entry.seconds for entry in each) for call, each in _by_call(entries).items()}
    during = [entry for entry in entries if entry.begun_at <= end and entry.ended_at >= begin]
    if not during:
        return None, None, None
    worst = max(during, key=lambda entry: entry.seconds - usual[entry.call])
    return worst.sequence, worst.seconds, usual[worst.call]


def overview_text(report: RankReport) -> list[str]:
    """Format a report as lines of text."""
    who, lines = f"rank {report.rank}", []
    if report.error:
        lines.append(f"{who} failed: {report.error}")
    if report.local_ranks:
        lines.append(f"{who}: shared memory with {', '.join(f'rank {each}' for each in report.local_ranks)}")
    return lines + [f"{who}: {_outage_text(each)}" for each in report.plane_events]


def _outage_text(event: PlaneOutage) -> str:
    ending = "until the end" if event.seconds is None else f"for {event.seconds:.1f} s"
    text = f"plane {event.plane} {event.state} after {event.began:.1f} s, {ending}: {event.lost} packets lost"
    if event.took is None or event.usual is None:
        return text
    return f"{text}; collective {event.sequence} took {event.took * 1e3:.1f} ms, usually {event.usual * 1e3:.1f} ms"


def _by_call(entries: Iterable[CollectiveRecord]) -> dict[str, list[CollectiveRecord]]:
    calls: dict[str, list[CollectiveRecord]] = {}
    for entry in entries:
        calls.setdefault(entry.call, []).append(entry)
    return calls


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return recorder files, those of folders included; ConfigError for a folder without one."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise ConfigError(
                f"{path}: no recorder file. A group writes one into the folder that {DIRECTORY_VARIABLE} names when it "
                f"fails; with {WHEN_VARIABLE}={ALWAYS} also when it ends, and on SIGUSR1"
            )
        found += inside
    return found


def _stopped(recordings: Iterable[FlightRecording]) -> Stopped:
    """Return which rank did not run for how long, by group and sequence; the one that did so longest."""
    found: Stopped = {}
    for recording in recordings:
        for entry in recording.entries:
            key = recording.group, entry.sequence
            if entry.paused > found.get(key, (0, 0.0))[1]:
                found[key] = recording.rank, entry.paused
    return found


def cause_of(entry: CollectiveRecord, stopped: tuple[int, float] = (0, 0.0)) -> tuple[str, str]:
    """Return (cause, explanation) for one collective; `stopped` is a rank that did not run meanwhile, and how long."""
    if entry.state != "done":
        return "failed", entry.state
    took = max(entry.seconds, 1e-9)
    if stopped[1] > _LATE_SHARE * took:
        return "stopped rank", f"the process of rank {stopped[0]} did not run for {stopped[1] * 1e3:.0f} ms or more"
    rank, late = max(entry.first.items(), key=lambda item: item[1], default=(None, 0.0))
    if rank is not None and late > _LATE_SHARE * took:
        return "late rank", f"rank {rank} joined {late * 1e3:.1f} ms after this rank"
    if entry.retransmitted:
        parts = [f"{count} packets to rank {rank} retransmitted" for rank, count in entry.retransmitted.items()]
        parts += [f"{count} lost on plane {plane}" for plane, count in entry.lost.items()]
        return "network", "; ".join([*parts, *_group_evs(entry.bad_evs)])
    rank, last = max(entry.last.items(), key=lambda item: item[1], default=(None, 0.0))
    rate = entry.bytes / took / 1e9
    ending = f"; the last data came from rank {rank} after {last * 1e3:.1f} ms" if rank is not None else ""
    return "transfer", f"{entry.bytes:,} bytes received at {rate:.2f} GB/s, nothing retransmitted{ending}"


def _group_evs(bad_evs: Iterable[str]) -> list[str]:
    """Format bad EVs, grouped by plane and state."""
    groups: dict[tuple[str, str], list[str]] = {}
    for text in bad_evs:
        plane, _, rest = text.partition(" EV ")
        value, _, state = rest.partition(" ")
        groups.setdefault((plane, state), []).append(value)
    return [f"{plane} {state}: EV {', '.join(values)}" for (plane, state), values in groups.items()]


def text_of(report: StepReport) -> list[str]:
    """Format a report as lines of text."""
    name = "all collectives" if report.step < 0 else f"step {report.step}"
    lines = [f"rank {report.rank}, {name}: {report.seconds * 1e3:.1f} ms (usually {report.usual * 1e3:.1f} ms)"]
    for found in report.findings:
        lines.append(
            f"  collective {found.sequence}, {found.call}: {found.seconds * 1e3:.1f} ms "
            f"(usually {found.usual * 1e3:.1f} ms)"
        )
        lines.append(f"    {found.cause}: {found.text}")
    return lines


def _findings(
    recording: FlightRecording, entries: Iterable[CollectiveRecord], most: int, stopped: Stopped
) -> list[SlowCollective]:
    slowest = sorted(entries, key=lambda entry: -entry.seconds)[:most]
    slowest = [entry for entry in slowest if entry.seconds >= _SHOWN_SHARE * slowest[0].seconds]
    findings = []
    for entry in slowest:
        usual = median(other.seconds for other in recording.entries if other.call == entry.call)
        cause, text = cause_of(entry, stopped.get((recording.group, entry.sequence), (0, 0.0)))
        findings.append(SlowCollective(recording.rank, entry.sequence, entry.call, entry.seconds, usual, cause, text))
    return findings


def _by_step(entries: Iterable[CollectiveRecord]) -> dict[int, list[CollectiveRecord]]:
    steps: dict[int, list[CollectiveRecord]] = {}
    for entry in entries:
        steps.setdefault(entry.step, []).append(entry)
    return steps


def _length(entries: Sequence[CollectiveRecord]) -> float:
    return max(entry.ended_at for entry in entries) - min(entry.begun_at for entry in entries)


def _range_text(steps: Iterable[int]) -> str:
    numbers = sorted(number for number in steps if number >= 0)
    return f"steps {numbers[0]} to {numbers[-1]}" if numbers else "no steps: call Group.step in the program"
