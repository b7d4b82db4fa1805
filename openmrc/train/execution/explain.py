"""Explain slow steps from flight recordings: which collective was slow, and which rank or plane caused it."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from openmrc.errors import ConfigError
from openmrc.train.execution.occupation import LEAST, Occupation, Pause
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
_PACKET, _LOSS_SHARE = 4096, 0.005  # bytes of a packet; of what is moved, a share of losses that costs no time
_MANY_READS = 200  # page faults a second that wait for a disk: the memory was on it


class SlowCause(StrEnum):
    STOPPED = "stopped rank"
    LATE = "late rank"
    BUSY = "busy processor"
    NETWORK = "network"
    TRANSFER = "transfer"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a rank was late, from its own file."""

    GARBAGE = "garbage collection"
    BUSY = "busy processor"
    LOADER = "data loader"
    CHECKPOINT = "checkpoint"
    READS = "memory read from a disk"
    COMPUTING = "computing"
    WAITING = "waiting"
    UNKNOWN = ""


class SlowCollective(msgspec.Struct):
    """One slow collective and its cause."""

    rank: int
    sequence: int
    call: str
    seconds: float
    usual: float  # median seconds of the same call at the same rank
    cause: SlowCause
    text: str
    ranks: list[int] = []  # that caused it, the first most
    reason: Reason = Reason.UNKNOWN  # of a late rank


class RankView(NamedTuple):
    """One collective as one rank saw it."""

    rank: int
    entry: CollectiveRecord
    pauses: list[Pause]

    def paused(self, since: float, until: float) -> float:
        """Return for how long (s) the process did not run in a time of its own clock."""
        return sum(max(min(each.began_at + each.seconds, until) - max(each.began_at, since), 0) for each in self.pauses)

    def stopped(self, late: float) -> float:
        """Return for how long (s) it did not run during the collective, or before, while it was `late` (s)."""
        within = self.paused(self.entry.begun_at, self.entry.ended_at)
        before = self.entry.before.seconds if self.entry.before is not None else 0.0
        return within + min(late, self.paused(self.entry.begun_at - before, self.entry.begun_at))


CallViews = dict[tuple[str, int], list[RankView]]  # by group and sequence


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
    """What `mrc train explain --json` prints: outages of planes, then the slow steps."""

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
    views = _views(recordings)
    for recording in recordings:
        steps = _by_step(recording.entries)
        lengths = {number: _length(entries) for number, entries in steps.items()}
        usual = median(lengths.values()) if lengths else 0.0
        chosen = [step] if step is not None else sorted(lengths, key=lambda number: -lengths[number])[:most]
        for number in chosen:
            if number not in steps:
                raise ConfigError(f"step {number}: rank {recording.rank} recorded {_range_text(steps)}")
            findings = _findings(recording, steps[number], most, views)
            reports.append(StepReport(number, recording.rank, lengths[number], usual, findings))
    return reports


def overview(recording: FlightRecording) -> RankReport:
    """Return the report of the whole run: its error, ranks in shared memory, and outages of planes."""
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
    during = [entry for entry in entries if entry.begun_at <= end and entry.ended_at >= begin]
    if not during:
        return None, None, None
    usual = {call: _usual(entries, call) for call in {entry.call for entry in during}}
    worst = max(during, key=lambda entry: entry.seconds - usual[entry.call])
    return worst.sequence, worst.seconds, usual[worst.call]


def overview_text(report: RankReport) -> list[str]:
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


def _usual(entries: Iterable[CollectiveRecord], call: str) -> float:
    return median(entry.seconds for entry in entries if entry.call == call)


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


def _views(recordings: Iterable[FlightRecording]) -> CallViews:
    found: CallViews = {}
    for recording in recordings:
        for entry in recording.entries:
            found.setdefault((recording.group, entry.sequence), []).append(
                RankView(recording.rank, entry, recording.pauses)
            )
    return found


def cause_of(view: RankView, views: Sequence[RankView] = ()) -> SlowCollective:
    """Return what made a collective slow at one rank; `views` are those of all ranks whose files there are."""
    entry, others = view.entry, [each for each in views if each.rank != view.rank]
    found = SlowCollective(view.rank, entry.sequence, entry.call, entry.seconds, entry.seconds, SlowCause.TRANSFER, "")
    if entry.state != "done":
        found.cause, found.text = SlowCause.FAILED, entry.state
        return found
    least = _LATE_SHARE * max(entry.seconds, 1e-9)
    late = _lateness(view, others)
    stopped = {view.rank: view.paused(entry.begun_at, entry.ended_at)}
    stopped |= {each.rank: each.stopped(late.get(each.rank, 0.0)) for each in others}
    every = [view, *others]
    busy = {each.rank: each.entry.starved for each in every}
    network = _network_text(every) if _is_delayed_by_network(every) else ""
    if max(stopped.values()) > least:
        found.cause, found.ranks = SlowCause.STOPPED, _worst(stopped)
        found.text = f"the process of {_and_more(found.ranks)} did not run for {_ms(max(stopped.values()))} or more"
        return found
    if max(late.values(), default=0.0) > least:
        found.cause, found.ranks = SlowCause.LATE, _worst(late)
        found.text = f"{_and_more(found.ranks)} joined {late[found.ranks[0]] * 1e3:.1f} ms after this rank"
        reasons = {each.rank: _reason(each.entry) for each in others if each.entry.before is not None}
        found.reason = reasons.get(found.ranks[0], (Reason.UNKNOWN, ""))[0]
        texts = [f"; rank {rank} {reasons[rank][1]}" for rank in found.ranks if rank in reasons]
        found.text += "".join(texts)
        return _with_also(found, [network])
    waited, crowded = f"waited {_ms(max(busy.values()))} for a processor", _worst(busy)
    is_busy = max(busy.values()) > least
    if is_busy and (not others or len(crowded) <= len(others)) and "SILENT" not in network:
        found.cause, found.ranks, found.text = SlowCause.BUSY, crowded, f"{_and_more(crowded)} {waited}"
        return _with_also(found, [network])
    if network:
        found.cause, found.text = SlowCause.NETWORK, network
    else:
        found.text = _transfer_text(entry)
    return _with_also(found, [f"{_and_more(crowded)} {waited}"] if is_busy else [])


def _with_also(found: SlowCollective, texts: Sequence[str]) -> SlowCollective:
    found.text = "; also ".join([found.text, *filter(None, texts)])
    return found


def _lateness(view: RankView, others: Sequence[RankView]) -> dict[int, float]:
    """Return by rank how much later (s) than this rank it joined: as this rank saw it, or a third one.

    A rank whose program called soon after its previous call was not late, whatever took so long to be seen here.
    """
    late = dict(view.entry.first)
    for other in others:
        own = other.entry.first.get(view.rank, 0.0)
        for rank, seconds in other.entry.first.items():
            if rank != view.rank and rank not in view.entry.first:
                late[rank] = max(late.get(rank, 0.0), seconds - own)
    for other in others:
        free = other.entry.before.seconds if other.entry.before is not None else LEAST
        late[other.rank] = min(late.get(other.rank, 0.0), free)
    return late


def _worst(seconds: Mapping[int, float]) -> list[int]:
    """Return the ranks with the longest time, and with more than half of it."""
    order = sorted(seconds, key=lambda rank: -seconds[rank])
    return [rank for rank in order if seconds[rank] > seconds[order[0]] / 2]


def _and_more(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"


def _reason(late: CollectiveRecord) -> tuple[Reason, str]:
    """Return why a rank was late, and a text that follows its name; `late` is its own entry."""
    before = late.before or Occupation(0.0)
    at, half = f"was in {before.place}" if before.place else "was", before.seconds / 2
    known = next((each for each in (Reason.LOADER, Reason.CHECKPOINT) if before.place.startswith(each)), None)
    if before.collecting > half:
        return Reason.GARBAGE, f"collected garbage for {_ms(before.collecting)}"
    if known is not None:
        return known, f"{at} for {_ms(before.seconds)}"
    if before.used < half and before.reads > _MANY_READS * before.seconds:
        return Reason.READS, f"{at} reading {before.reads:,} pages of memory from a disk"
    if before.starved > half:
        return Reason.BUSY, f"{at} waiting for a processor for {_ms(before.starved)}"
    what = Reason.COMPUTING if before.used > half else Reason.WAITING
    return what, f"{at} {what} for {_ms(before.seconds)}"


def _network_text(views: Sequence[RankView]) -> str:
    """Describe what was retransmitted and lost during a collective, in detail at the first rank; empty: nothing."""
    entry = views[0].entry
    parts = [f"{_packets(count)} to rank {rank} retransmitted" for rank, count in entry.retransmitted.items()]
    if parts:
        parts += [f"{count} lost on plane {plane}" for plane, count in entry.lost.items()]
        parts += _group_evs(entry.bad_evs)
    lost: collections.Counter[int] = collections.Counter()
    for view in views[1:]:
        if view.entry.retransmitted:
            parts.append(f"{_packets(sum(view.entry.retransmitted.values()))} retransmitted by rank {view.rank}")
            lost.update(view.entry.lost)
    return "; ".join(parts + [f"{count} lost there on plane {plane}" for plane, count in sorted(lost.items())])


def _is_delayed_by_network(views: Sequence[RankView]) -> bool:
    """Whether more packets were retransmitted than a busy host loses now and then, or a plane was silent."""
    retransmitted = sum(sum(view.entry.retransmitted.values()) for view in views)
    moved = sum(max(view.entry.bytes, 0) for view in views)
    is_silent = any(each.endswith(" SILENT") for view in views for each in view.entry.bad_evs)
    return retransmitted > 0 and (is_silent or retransmitted * _PACKET > _LOSS_SHARE * moved)


def _packets(count: int) -> str:
    return f"{count} packet{'' if count == 1 else 's'}"


def _transfer_text(entry: CollectiveRecord) -> str:
    rank, last = max(entry.last.items(), key=lambda item: item[1], default=(None, 0.0))
    rate = entry.bytes / max(entry.seconds, 1e-9) / 1e9
    ending = f"; the last data came from rank {rank} after {last * 1e3:.1f} ms" if rank is not None else ""
    return f"{entry.bytes:,} bytes received at {rate:.2f} GB/s, nothing retransmitted{ending}"


def _group_evs(bad_evs: Iterable[str]) -> list[str]:
    """Format bad EVs, grouped by plane and state."""
    groups: dict[tuple[str, str], list[str]] = {}
    for text in bad_evs:
        plane, _, rest = text.partition(" EV ")
        value, _, state = rest.partition(" ")
        groups.setdefault((plane, state), []).append(value)
    return [f"{plane} {state}: EV {', '.join(values)}" for (plane, state), values in groups.items()]


def text_of(report: StepReport) -> list[str]:
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
    recording: FlightRecording, entries: Iterable[CollectiveRecord], most: int, views: CallViews
) -> list[SlowCollective]:
    slowest = sorted(entries, key=lambda entry: -entry.seconds)[:most]
    slowest = [entry for entry in slowest if entry.seconds >= _SHOWN_SHARE * slowest[0].seconds]
    findings = []
    for entry in slowest:
        view = RankView(recording.rank, entry, recording.pauses)
        found = cause_of(view, views[recording.group, entry.sequence])
        found.usual = _usual(recording.entries, entry.call)
        findings.append(found)
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
