"""Are cut and lossy links of a lab named by real SRv6 probes? `sudo python -m bench.lab.probing [INJECTIONS]`.

The prober and the localiser of `mrc map watch`, without a pause between slices, on a lab of 16 NICs and 4 planes
without traffic: the whole plan is sent as datagrams to their carriers, forwarded by the kernel's SRv6.

Injections take turns: a cable pulled (no carrier), one direction that loses all, and one that loses a tenth; places are
random. Between two, the lab is whole and a second without a fault must name nothing.

named    rightly named parts; time from the injection (its call returned) to the verdict, median, p90 and largest
repaired time from the repair (its call returned) to the end of the fault, median
wrong    verdicts about other parts; `quiet` counts verdicts without a fault
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import numpy as np

from harness import labs
from openmrc.base.faults import Schedule
from openmrc.lab.faults import Breaker
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.plane_watch import PlaneWatch
from openmrc.operations.fleets.lab_prober import SLICES, LabProber, hurry

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab.yaml"
NAME = "bench-probing"
LIMIT_S, QUIET_S, REPAIR_S = 3.0, 0.3, 8.0


class Watched:
    """All planes of the lab under a prober."""

    def __init__(self, breaker: Breaker) -> None:
        self.prober = LabProber(breaker.lab, pace_s=0.0)
        now = time.monotonic()
        self.planes = [
            PlaneWatch(PlaneParts(breaker.lab.topology, each.shape), each, now) for each in self.prober.plans
        ]
        self.steps = 0

    def step(self) -> list[str]:
        """Send a slice; return what is newly named."""
        self.steps += 1
        for done in self.prober.step():
            self.planes[done.plane].probed(time.monotonic(), done)
        for plane, rows in enumerate(self.prober.doubts()):
            self.prober.recheck(plane, self.planes[plane].around(rows))
        now = time.monotonic()
        return [verdict.part for plane in self.planes for _, verdict in plane.judge(now)]

    def during(self, seconds: float) -> list[str]:
        """Return what is named within a time."""
        end, said = time.monotonic() + seconds, list[str]()
        while time.monotonic() < end:
            said += self.step()
        return said

    def is_repaired(self) -> bool:
        """Forget the faults that are repaired; return whether none is left."""
        now = time.monotonic()
        for plane in self.planes:
            for part in plane.repaired(now):
                plane.forget(part)
        return not any(plane.faults for plane in self.planes)


def injection(planes: list[PlaneWatch], turn: int, draw: random.Random) -> tuple[str, str]:
    """Return a part and the words that break it."""
    parts = draw.choice(planes).parts
    link = draw.randrange(parts.links)
    if turn % 3 == 0:
        name = parts.name(parts.links + int(parts.cable_of[link]))
        return name, f"down: {name}"
    name = parts.name(link)
    return name, f"loss: {'100%' if turn % 3 == 1 else '10%'}, on: {name}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    draw = random.Random(27)
    kinds = ("cable pulled", "direction 100 %", "direction 10 %")
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    repairs: dict[str, list[float]] = {kind: [] for kind in kinds}
    wrong: list[tuple[str, str]] = []
    quiet: list[str] = []
    hurry()
    with labs.held(FABRIC, NAME):
        breaker = Breaker(NAME)
        watched = Watched(breaker)
        watched.during(1.0)
        begun, before = time.monotonic(), watched.steps
        quiet += watched.during(2.0)
        sweep = (time.monotonic() - begun) / (watched.steps - before) * SLICES
        for turn in range(count):
            quiet += watched.during(QUIET_S)
            name, words = injection(watched.planes, turn, draw)
            breaker.apply(Schedule.parse(words).steps[0])
            begun, said = time.monotonic(), list[str]()
            while not said and time.monotonic() - begun < LIMIT_S:
                said = watched.step()
            passed = (time.monotonic() - begun) * 1000
            wrong += [(name, each) for each in said if each != name]
            if name in said:
                times[kinds[turn % 3]].append(passed)
            breaker.clear()
            begun = time.monotonic()
            while not watched.is_repaired() and time.monotonic() - begun < REPAIR_S:
                wrong += [(name, each) for each in watched.step() if each != name]
            if said and watched.is_repaired():
                repairs[kinds[turn % 3]].append((time.monotonic() - begun) * 1000)
            for plane in watched.planes:
                for part in list(plane.faults):
                    plane.forget(part)
                plane.counts.forget(np.arange(len(plane.counts)))
        late = watched.prober.late_slices
        watched.prober.close()
    for index, kind in enumerate(kinds):
        found, tried = np.array(sorted(times[kind])), len(range(index, count, 3))
        line = f"{kind:<16} named {len(found)} of {tried}"
        if len(found):
            line += f"  median {np.median(found):.0f} p90 {np.quantile(found, 0.9):.0f} max {found[-1]:.0f} ms"
            line += f"; repaired {len(repairs[kind])}, median {np.median(repairs[kind] or [0]):.0f} ms"
        print(line)
    print(f"wrong {wrong}; quiet {quiet}; a sweep takes {1000 * sweep:.1f} ms; {late} slices were late")


if __name__ == "__main__":
    main()
