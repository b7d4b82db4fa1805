"""A chart of a training run: loss and step time against wall time, and the faults of each plane."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from openmrc.base.faults import Impairment, Schedule
from openmrc.report.strips import GAP, HIGH, Strip
from openmrc.report.strips import drawing as strips_drawing
from openmrc.report.svg import ShadedTime
from openmrc.units import PS_PER_MS

_LANE, _PANEL = 18, HIGH  # px: of a plane, of a curve
_LOSS, _TIME = 0, 1  # colours
_WARMING = 4  # points of a curve that may exceed the scale: the first steps allocate buffers


class Course(msgspec.Struct, kw_only=True):
    """The progress of one rank's training, by step."""

    title: str
    at: list[float]  # s from the beginning of the first step to the end of each
    loss: list[float]
    seconds: list[float]  # of each step
    planes: int
    faults: str = ""  # the schedule that all ranks followed
    faults_at: float = 0.0  # s from the beginning of the first step to that of the schedule


def faults_of(course: Course, plane: int) -> list[ShadedTime]:
    """Return the faults of a plane until the end of the run."""
    end = course.at[-1] if course.at else 0.0
    schedule, after = Schedule.parse(course.faults), course.faults_at
    spans = schedule.spans(plane, course.planes, text_of)
    return [
        ShadedTime(after + begin, min(after + over, end), text) for begin, over, text in spans if after + begin < end
    ]


def text_of(impairment: Impairment) -> str:
    if impairment == Impairment():
        return ""
    if impairment.down:
        return "down"
    shares = ("loss", "corruption", "duplicate", "reorder", "trim")
    words = [f"{name} {getattr(impairment, name) * 100:.3g}%" for name in shares if getattr(impairment, name)]
    if impairment.delay or impairment.jitter:
        words.append(f"delay {(impairment.delay + impairment.jitter) / PS_PER_MS:g} ms")
    return ", ".join(words) or "impaired"


def drawing(course: Course) -> str:
    """Return an SVG: a lane for each plane with its faults, then loss and step time."""
    length = max(course.at[-1] if course.at else 0.0, 1e-9)
    faults = [faults_of(course, plane) for plane in range(course.planes)]
    usual = statistics.median(course.seconds) * 1e3 if course.seconds else 0.0
    ends = list(zip(course.at, course.seconds, strict=True))
    times = [point for at, seconds in ends for point in ((at - seconds, seconds * 1e3), (at, seconds * 1e3))]
    shades = [replace(each, label="") for of_plane in faults for each in of_plane]
    strips = [Strip(f"plane {plane}", height=_LANE, shades=of_plane) for plane, of_plane in enumerate(faults)]
    strips.append(Strip("", height=GAP))
    strips.append(_panel("loss", list(zip(course.at, course.loss, strict=True)), _LOSS, shades))
    strips.append(_panel(f"step time, ms (median {usual:.3g})", times, _TIME, shades))
    note = "red: faults of a plane, at every rank"
    return strips_drawing(course.title, "seconds of training", strips, length, note)


def _panel(name: str, points: Sequence[tuple[float, float]], colour: int, shades: Sequence[ShadedTime]) -> Strip:
    """Return a curve, on a scale that the first steps may exceed."""
    steady = [value for _, value in points[_WARMING:]] or [value for _, value in points]
    return Strip(
        name,
        [at for at, _ in points],
        [value for _, value in points],
        most=max(steady, default=1.0) * 1.08 or 1.0,
        colour=colour,
        height=_PANEL,
        is_filled=False,
        shades=shades,
    )
