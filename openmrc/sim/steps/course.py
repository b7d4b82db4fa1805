"""The course of a job of many steps: which were simulated, how long all took, and what each disturbance cost."""

import math
from dataclasses import dataclass, field
from typing import Any

from openmrc.sim.steps.equivalence import KnownStep
from openmrc.units import PS_PER_S, PS_PER_US


@dataclass(frozen=True)
class Stretch:
    """Steps in a row: one that was simulated, or several that were left out."""

    begins: int  # ps, of the job's time
    steps: int
    took: int  # ps, all of them
    present: int  # faults, when it began
    changes: int = 0  # faults that came or went in it
    repaired: int = 0  # packets sent again
    known: KnownStep | None = None  # what stands for the steps that were left out; None: simulated


@dataclass
class StepCourse:
    name: str
    transport: str
    nics: int
    seed: int
    threads: int
    steps_wanted: int
    stretches: list[Stretch] = field(default_factory=list)
    calm: KnownStep | None = None  # steps without a fault; None: none was simulated
    stopped: str = ""  # why the job ended early
    note: str = ""  # what to think of the figures
    hops: int = 0
    late: int = 0  # ps, by which computations were too short for the last acknowledgements, of all steps
    setup_s: float = 0.0
    wall_s: float = 0.0

    @property
    def steps(self) -> int:
        return sum(each.steps for each in self.stretches)

    @property
    def simulated(self) -> int:
        return sum(each.known is None for each in self.stretches)

    @property
    def took(self) -> int:
        """Return the job's time (ps)."""
        return sum(each.took for each in self.stretches)

    @property
    def lost(self) -> float:
        """Return what faults cost (ps)."""
        return sum(self.cost(each) for found in disturbances(self) for each in found)

    def cost(self, stretch: Stretch) -> float:
        """Return how much longer a stretch took than as many calm steps (ps), by all that is known in the end."""
        if self.calm is None:
            return 0.0
        length = stretch.took if stretch.known is None else stretch.known.mean * stretch.steps
        return length - self.calm.mean * stretch.steps

    def uncertainty(self, stretch: Stretch) -> float:
        """Return the standard error of that cost (ps): the lengths of steps vary by themselves."""
        if self.calm is None or stretch.known is self.calm:
            return 0.0
        of_calm = self.calm.error * stretch.steps
        own = self.calm.spread if stretch.known is None else stretch.known.error * stretch.steps
        return math.hypot(of_calm, own)


def figures(course: StepCourse, disturbance: list[Stretch]) -> dict[str, Any]:
    """Return what a disturbance was, and what it cost."""
    simulated = [each for each in disturbance if each.known is None]
    return {
        "at_s": disturbance[0].begins / PS_PER_S,
        "steps": sum(each.steps for each in disturbance),
        "steps_simulated": len(simulated),
        "changes": sum(each.changes for each in disturbance),
        "repaired": sum(each.repaired for each in disturbance),
        "longest_us": max(each.took for each in simulated) / PS_PER_US,
        "cost_us": sum(map(course.cost, disturbance)) / PS_PER_US,
        "uncertain_us": math.hypot(*map(course.uncertainty, disturbance)) / PS_PER_US,
    }


def disturbances(course: StepCourse) -> list[list[Stretch]]:
    """Return the disturbances in order: faults come and go, are present, or packets are still repaired.

    One lasts from the step in which a fault comes until a calm step.
    """
    made: list[list[Stretch]] = []
    is_open = False
    for each in course.stretches:
        is_open = is_open and (each.known is None or each.present > 0)  # calm steps that were left out end it
        if not is_open and each.changes:
            made.append([])
            is_open = True
        if is_open:
            made[-1].append(each)
            is_open = bool(each.present or each.changes or each.repaired)
    return made


def summary(course: StepCourse) -> dict[str, Any]:
    """Return the figures of a course, as `mrc sim steps --json` prints them."""
    rows = [figures(course, each) for each in disturbances(course)]
    lost = course.lost / PS_PER_US
    return {
        "name": course.name,
        "transport": course.transport,
        "nics": course.nics,
        "seed": course.seed,
        "threads": course.threads,
        "steps": course.steps,
        "steps_wanted": course.steps_wanted,
        "steps_simulated": course.simulated,
        "job_s": course.took / PS_PER_S,
        "calm_step_us": course.calm.mean / PS_PER_US if course.calm else None,
        "lost_us": lost,
        "uncertain_us": math.hypot(*(row["uncertain_us"] for row in rows)),
        "lost_percent": 100 * lost * PS_PER_US / max(1, course.took),
        "stopped": course.stopped,
        "note": course.note,
        "disturbances": rows,
        "late_us": course.late / PS_PER_US,
        "packet_hops": course.hops,
        "setup_s": course.setup_s,
        "wall_s": course.wall_s,
    }
