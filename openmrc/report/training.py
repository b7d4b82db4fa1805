"""A chart of a training run: loss and step time against wall time, and the faults of each plane."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from openmrc.base.faults import Impairment, OverlappingImpairments, Schedule, Step
from openmrc.report.strips import GAP, HIGH, Strip
from openmrc.report.strips import drawing as strips_drawing
from openmrc.report.svg import ShadedTime
from openmrc.units import PS_PER_MS, PS_PER_S

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


def faults_of(course: Course) -> list[list[ShadedTime]]:
    """Return the faults of each plane until the end of the run."""
    end = course.at[-1] if course.at else 0.0
    steps = Schedule.parse(course.faults).steps if course.faults else ()
    return [list(_faults_of(plane, steps, course, end)) for plane in range(course.planes)]


def _faults_of(plane: int, steps: Sequence[Step], course: Course, end: float) -> Iterator[ShadedTime]:
    layers, now, begun = OverlappingImpairments(), Impairment(), 0.0
    mine = [step for step in steps if plane in step.planes(course.planes)]
    for step in mine:
        at = course.faults_at + step.at / PS_PER_S
        if now != Impairment() and begun < end:
            yield ShadedTime(begun, min(at, end), text_of(now))
        layers.apply(step)
        now, begun = layers.now, at
    if now != Impairment() and begun < end:
        yield ShadedTime(begun, end, text_of(now))


def text_of(impairment: Impairment) -> str:
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
    faults = faults_of(course)
    usual = statistics.median(course.seconds) * 1e3 if course.seconds else 0.0
    ends = list(zip(course.at, course.seconds, strict=True))
    times = [point for at, seconds in ends for point in ((at - seconds, seconds * 1e3), (at, seconds * 1e3))]
    strips = [Strip(f"plane {plane}", height=_LANE, shades=shades) for plane, shades in enumerate(faults)]
    strips.append(Strip("", height=GAP))
    unnamed = [replace(each, label="") for shades in faults for each in shades]
    strips.append(_panel("loss", list(zip(course.at, course.loss, strict=True)), _LOSS, unnamed))
    strips.append(_panel(f"step time, ms (median {usual:.3g})", times, _TIME, unnamed))
    note = "red: faults of a plane, at every rank"
    return strips_drawing(course.title, "seconds of training", strips, length, note)


def _panel(name: str, points: Sequence[tuple[float, float]], colour: int, faults: Sequence[ShadedTime]) -> Strip:
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
        shades=faults,
    )
