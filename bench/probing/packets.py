"""Break links of a packet simulation and count what the localiser names from its endpoints' votes alone.

    python -m bench.probing.packets --nics 1024 --trials 20
    python -m bench.probing.packets --nics 128 --trials 50

Every trial is a run of the packet simulator: NICs on two planes of 100 Gb/s with T0s of 16, permutations with several
strides, a fault at a drawn place between T0s and T1s from 20 us on. Every 10 us the localiser explains the deliveries
and losses of all EVs (`openmrc.view.simulation_votes`, as on the live page). There are no probes: this is what
endpoints' votes say by themselves.

named     broken parts of which a verdict named a direction within `--window` simulated us
exact     of these, by the part's own name
wrong     verdicts that share no direction with the broken part
us        from the fault to the first right verdict: median, largest
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.sim.scenario.fault_targets import links_at
from openmrc.sim.scenario.scenario import load
from openmrc.view.simulation_source import SimulationSource

KINDS = {  # which parts, share of packets lost
    "silent cable": ("<>", "100%"),
    "silent direction": (">", "100%"),
    "silent T1": ("", "100%"),
    "5 % direction": (">", "5%"),
    "1 % direction": (">", "1%"),
}
STEP_US, BEGIN_US, T0_NICS = 10.0, 20.0, 16
SCENARIO = """
name: packets
fabric:
  name: packets
  hosts: {{count: {nics}}}
  planes:
    - {{count: 2, host_gbps: 100, t0: {{down: 16, up: 16}}, t1: {{}}}}
transport: {{name: mrc}}
workloads:
{work}
faults:
  - {{at: 20us, for: 5ms, loss: "{loss}", on: "{part}"}}
seed: {seed}
until: 10ms
"""


def place(kind: str, nics: int, draw: np.random.Generator) -> str:
    """Return a part of plane 0 between T0s and T1s."""
    t0, t1 = f"p0-t0-{draw.integers(nics // T0_NICS):02d}", f"p0-t1-{draw.integers(T0_NICS):02d}"
    word = KINDS[kind][0]
    ends = (t0, t1) if word == "<>" or draw.random() < 0.5 else (t1, t0)
    return word.join(ends) if word else t1


def trial(kind: str, given: argparse.Namespace, index: int) -> dict[str, Any]:
    """Run one fault; return what was said of it."""
    part = place(kind, given.nics, np.random.default_rng([given.seed, index]))
    strides = [T0_NICS * (1 + at) + 1 for at in range(given.peers)]
    work = "\n".join(f"  - {{kind: permutation, size: 4MiB, stride: {stride}}}" for stride in strides)
    text = SCENARIO.format(nics=given.nics, work=work, loss=KINDS[kind][1], part=part, seed=given.seed + index)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packets.yaml"
        path.write_text(text)
        source = SimulationSource(load(path), STEP_US)
    if not source.picture().verdicts_from:
        raise SystemExit("too many EVs for votes: fewer NICs or --peers")
    broken = set(links_at(source.topology, part).tolist())
    found: dict[str, Any] = {"kind": kind, "part": part, "us": None, "exact": False, "wrong": []}
    for _ in range(round((BEGIN_US + given.window) / STEP_US)):
        frame = source.frame()
        for verdict in frame.verdicts:
            if not broken & set(links_at(source.topology, verdict.suspect).tolist()):
                found["wrong"].append(verdict.suspect)
            elif found["us"] is None:
                found.update(us=frame.at - BEGIN_US, exact=verdict.suspect == part, said=verdict.suspect)
        if found["us"] is not None or frame.finished:
            break
    return found


def summary(kind: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    times = sorted(each["us"] for each in found if each["us"] is not None)
    return {
        "kind": kind, "trials": len(found), "named": len(times), "exact": sum(each["exact"] for each in found),
        "wrong": sum(len(set(each["wrong"])) for each in found),
        "us_median": statistics.median(times) if times else None, "us_largest": times[-1] if times else None,
        "otherwise": sorted({each["said"] + " for " + each["part"] for each in found
                             if each["us"] is not None and not each["exact"]}),
    }  # fmt: skip


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nics", type=int, default=1024)
    asked.add_argument("--trials", type=int, default=20)
    asked.add_argument("--peers", type=int, default=1)
    asked.add_argument("--window", type=float, default=300.0, help="simulated us after the fault")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--limit", type=float, default=280.0, help="s; no trial begins later")
    given = asked.parse_args()
    begun, kinds = time.perf_counter(), list(KINDS)
    found = []
    for index in range(given.trials):
        if time.perf_counter() - begun > given.limit:
            break
        found.append(trial(kinds[index % len(kinds)], given, index))
    rows = [summary(kind, [each for each in found if each["kind"] == kind]) for kind in kinds]
    print(json.dumps({"nics": given.nics, "trials": len(found), "kinds": [row for row in rows if row["trials"]],
                      "wall_s": round(time.perf_counter() - begun, 1)}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
