"""A schedule of faults as the numbers that the native library applies: it reads no words.

Each step says all that happens to the arrivals of one plane from a time on, until the next step about that plane.
"""

from __future__ import annotations

from openmrc.base.faults import Impairment, OverlappingImpairments, Schedule
from openmrc.live.host.impairments import in_engine_units

WORDS = tuple(in_engine_units(Impairment()))  # in this order, as in native/src/endpoint/faults.c


def fault_steps(schedule: Schedule, planes: int) -> str:
    """Return "at_ps plane down delay jitter rate loss ...; ..." in order of time; ConfigError for an unknown plane."""
    layers = [OverlappingImpairments() for _ in range(planes)]
    steps = []
    for step in schedule.steps:
        for plane in step.planes(planes):
            layers[plane].apply(step)
            values = in_engine_units(layers[plane].now)
            steps.append(" ".join(map(str, (step.at, plane, *values.values()))))
    return ";".join(steps)
