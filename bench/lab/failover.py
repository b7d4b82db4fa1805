"""How long does a pulled cable hurt a stream at full load? `sudo python -m bench.lab.failover [PULLS] [KIND...]`.

KIND is mrc, mptcp, tcp; all of them unless said, one after the other, with the same pulls.

left    of mrc: from the pull until the last data packet went into the dead cable: the sender had stopped using it
own     the same of those pulls that took a cable of the sender itself, whose carrier it watches; mark: p99 of 1 ms
stall   the longest time without a piece delivered, in order, while the cable was out
calm    the same of those pulls during which no processor was paused for over half a millisecond: hypervisors pause
        shared machines for several at a time; nothing runs there meanwhile, whatever its priority; mark: p99 of 3 ms
quiet   the same over as long a time before each pull: what the machine does to the stream anyway
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from bench.lab.experiments import priorities
from bench.lab.experiments.pieces import longest_gap_ms
from bench.lab.experiments.trial import stream
from harness import labs
from harness.pauses import Pauses
from openmrc.base.faults import Schedule
from openmrc.lab.faults import Breaker, ExecutedStep
from openmrc.lab.layout import Cable
from openmrc.lab.status import counters

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab-fast.yaml"
NAME, SOURCE, DESTINATION = "bench-failover", "h0", "h5"
EVERY_S, OUT_S = 0.6, 0.3
_MS = 1_000_000
_PAUSE_MS = 0.5


def cables_on_the_way(breaker: Breaker) -> list[tuple[str, list[Cable]]]:
    """Return the places to pull in turn: the source's own cables, and those of its T0s upwards."""
    lab = breaker.lab
    found: dict[str, list[Cable]] = {}
    t0s = [cable.upper.node for cable in lab.cables if cable.lower.node == SOURCE]
    for cable in lab.cables:
        if cable.lower.node == SOURCE or (cable.lower.node in t0s and not cable.lower.is_nic):
            found.setdefault(f"{cable.lower.node}<>{cable.upper.node}", []).append(cable)
    for plane, t0 in enumerate(t0s):  # a NIC joins one T0 a plane, so the pair names the cable
        assert f"{SOURCE}<>{t0}" in found, plane
    return list(found.items())


def main() -> None:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priorities.BETWEEN))
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    kinds = [word for word in sys.argv[1:] if not word.isdigit()] or ["mrc", "mptcp", "tcp"]
    with labs.held(FABRIC, NAME):
        for kind in kinds:
            report(Breaker(NAME), kind, numbers[0] if numbers else 100)


def report(breaker: Breaker, kind: str, pulls: int) -> None:
    places = cables_on_the_way(breaker)
    chosen = [places[number % len(places)] for number in range(pulls)]
    text = [
        f"at: {1 + number * EVERY_S:.3f}s, for: {OUT_S}s, down: {place}" for number, (place, _) in enumerate(chosen)
    ]
    left: list[float] = []
    pulled_at = [0]

    def on_done(done: ExecutedStep) -> None:
        if done.change["down"]:
            pulled_at[0] = done.monotonic_ns
            return
        last = max(counters(breaker.record, cable.lower).data_lost_at for cable in chosen[len(left)][1])
        left.append(max(0, last - pulled_at[0]) / _MS)

    schedule = Schedule.parse("; ".join(text))
    with Pauses() as machine:
        trial = stream(breaker, kind, SOURCE, DESTINATION, 3 + pulls * EVERY_S, lambda: breaker.run(schedule, on_done))
    steps = [step.monotonic_ns for step in trial.steps if step.change["down"]]
    out = round(OUT_S * 1e9)
    stall = [longest_gap_ms(trial.times, at, at + out) for at in steps]
    quiet = [longest_gap_ms(trial.times, at - out, at - 5 * _MS) for at in steps]
    print(f"{kind}: {pulls} pulls, {trial.gbps(trial.began, steps[0]):.3f} Gb/s before the first,", end=" ")
    print("not a byte lost or misplaced" if trial.is_whole else "BYTES LOST OR MISPLACED")
    own = [value for value, (place, _) in zip(left, chosen, strict=True) if place.startswith(f"{SOURCE}<>")]
    paused = [machine.longest_ms(at, at + out) for at in steps]
    calm = [value for value, longest in zip(stall, paused, strict=True) if longest <= _PAUSE_MS]
    for name, values in (("left", left), ("own", own), ("stall", stall), ("calm", calm), ("quiet", quiet)):
        if not values or (name in ("left", "own") and kind != "mrc"):
            continue  # the ports note when MRC's data was lost
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        print(
            f"{name:<6} ms  p50 {p50:7.2f}  p90 {p90:7.2f}  p99 {p99:7.2f}  most {max(values):7.2f}  of {len(values)}"
        )
    print(
        f"processors were paused for over {_PAUSE_MS:g} ms in {pulls - len(calm)} pulls, at most {max(paused):.1f} ms"
    )


if __name__ == "__main__":
    main()
