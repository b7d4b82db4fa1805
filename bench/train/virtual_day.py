"""Train for a day of virtual time while cables flap.

The simulator runs the training step of its scenarios: the engine of the live endpoint, and the ring all-reduce of
`openmrc.collectives`. Scaled down to four hosts with four planes of 100 Mb/s, links of 50 us, steps of half a minute
and 256 KiB, so that a day takes minutes and that all-reduces take long enough to meet flaps.
Flaps, of 50 ms to 30 s, hit one host's cable or a whole plane, at most three planes at once. Mark: every step is done,
and no connection ends in error.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

import msgspec

from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import Status, simulate
from openmrc.units import PS_PER_S

HOSTS, PLANES = 4, 4
HOUR_S = 3600
FLAPS_PER_HOUR = 240
LINK_NS = 50_000  # the simulator advances by the shortest delay of a link


def scenario(hours: float, step: float, seed: int) -> Scenario:
    """Return the training of `hours` in steps of `step` (s) with the flaps of `seed`."""
    t0 = {"down": 2, "up": 2, "switch_ns": 600, "up_link_ns": LINK_NS}
    plane = {"count": PLANES, "host_gbps": 0.1, "host_link_ns": LINK_NS, "t0": t0, "t1": {"switch_ns": 600}}
    made = {
        "name": f"{hours:g} hours of flaps",
        "fabric": {"name": "four planes of 100 Mb/s", "hosts": {"count": HOSTS}, "planes": [plane]},
        "transport": {"name": "mrc"},
        "workloads": [
            {
                "kind": "training_step",
                "steps": max(1, round(hours * HOUR_S / step)),
                "compute": f"{step:g}s",
                "jitter": 0.02,
                "collectives": [{"kind": "ring_all_reduce", "size": "256KiB", "group": HOSTS}],
            }
        ],
        "faults": flaps(hours * HOUR_S, random.Random(seed)),
        "sampling": {"every": "60s"},
        "seed": seed,
        "until": f"{hours * HOUR_S * 1.2:g}s",
    }
    return msgspec.convert(made, Scenario)


def flaps(seconds: float, draw: random.Random) -> list[dict[str, Any]]:
    """Return faults at random times; a plane is hit again only after it has recovered, and one stays whole."""
    down_until = [0.0] * PLANES
    steps: list[dict[str, Any]] = []
    for at in sorted(draw.uniform(0, seconds) for _ in range(round(seconds / HOUR_S * FLAPS_PER_HOUR))):
        whole = [plane for plane in range(PLANES) if down_until[plane] < at]
        if len(whole) > 1:
            plane, lasts = draw.choice(whole), draw.choice((0.05, 0.2, 1.0, 5.0, 30.0))
            where = f"h{draw.randrange(HOSTS)} port {plane}" if draw.random() < 0.7 else f"plane {plane}"
            steps.append({"at": f"{at * 1e3:.0f}ms", "for": f"{lasts * 1e3:.0f}ms", "down": where})
            down_until[plane] = at + lasts
    return steps


def report(status: Status) -> None:
    """Print the virtual time reached."""
    print(f"\r{status.now / PS_PER_S / HOUR_S:6.2f} h, {status.wall_s:4.0f} s", end="", file=sys.stderr, flush=True)


def main() -> None:
    """Print steps, flaps, retransmissions and errors; exit 1 if the mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--step", type=float, default=30.0, help="seconds of computation in a step")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    made = scenario(options.hours, options.step, options.seed)
    result = summary(simulate(made, on_progress=report))
    job, steps = result["job"], result["marks_us"]["step"]
    print(
        f"\n{result['simulated_us'] / 1e6 / HOUR_S:.2f} h of virtual time in {result['wall_s']:.0f} s: "
        f"{sum(at is not None for at in steps):,} of {len(steps):,} steps, {len(made.faults):,} flaps, "
        f"{result['packets']['new']:,} packets, {result['packets']['retransmitted']:,} retransmitted, "
        f"connections in error: {result['failed']}; step in ms: {milliseconds(result['step_us'])}"
    )
    is_ok = job["finished"] and not job["stopped"] and not result["failed"]
    print("ok" if is_ok else f"missed: {job}, {result['errors']}")
    sys.exit(0 if is_ok else 1)


def milliseconds(step_us: dict[str, Any]) -> str:
    """Return the numbers of a summary's step times in milliseconds."""
    return ", ".join(f"{name} {value / 1e3:.2f}" for name, value in step_us.items() if isinstance(value, float))


if __name__ == "__main__":
    main()
