"""Is a job whose equal steps are simulated once the same as one whose every step is, and how long does an hour take?

python -m bench.sim.equal_steps
ten jobs, each beside `mrc sim run`: the job's time, and its steps above the median one, or what faults cost it
python -m bench.sim.equal_steps --first 6 --count 1 --first-seed 2 --runs runs.jsonl
the same in pieces, here the third seed of job 6: each run is appended to a file
python -m bench.sim.equal_steps --table runs.jsonl
the table of all runs in the file, means over the seeds of each job
python -m bench.sim.equal_steps --hour --threads 2
an hour of 16,384 NICs, a flap every two minutes; goal: ten minutes
python -m bench.sim.equal_steps --hour --threads 2 --flaps 5 --first 5
ten minutes of it, which begin anew
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from openmrc.sim.results.summary import summary as result
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import simulate
from openmrc.sim.steps.course import summary
from openmrc.sim.steps.job import StepsProgress, run_steps

GOAL_S, GOAL_PERCENT = 600.0, 1.0
SHORT_STEPS = 120
FLAP_S, EVERY_S, FLAPS = 2.0, 120.0, 30
Run = dict[str, Any]  # a job with one seed, both ways
TRANSPORTS = ("mrc", "mrc", "mrc", "mrc", "uet", "uet", "roce", "roce", "roce_adaptive", "roce_adaptive")


def hour(nics: int, size: str, first: int = 0, flaps: int = FLAPS) -> Scenario:
    """Return a job of two minutes a flap: 500 us of computation, an all-reduce; a T0-T1 link flaps in the middle."""
    draw, faults = random.Random(1 + first), []
    for flap in range(flaps):
        plane, t0, t1 = draw.randrange(8), draw.randrange(nics // 32), draw.randrange(32)
        at = EVERY_S * (flap + 0.5) + draw.random() / 100
        faults.append({"at": f"{at:.6f}s", "for": f"{FLAP_S:g}s", "down": f"p{plane}-t0-{t0:03}<>p{plane}-t1-{t1:02}"})
    made = {
        "name": f"{flaps * EVERY_S / 60:g} minutes of {nics:,} NICs",
        "fabric": {
            "name": f"{nics:,} NICs",
            "hosts": {"count": nics // 4, "nics": 4},
            "planes": [{"count": 8, "host_gbps": 100, "t0": {"down": 32, "up": 32}, "t1": {}}],
        },
        "workloads": [
            {"kind": "training_step", "steps": 1_000_000_000, "compute": "500us", "jitter": 0.02,
             "collectives": [{"kind": "ring_all_reduce", "size": size, "group": 4, "placement": "strided"}]}
        ],
        "faults": faults,
        "until": f"{flaps * EVERY_S:g}s",
    }  # fmt: skip
    return msgspec.convert(made, Scenario)


def short(number: int) -> Scenario:
    """Return a job of some steps on 64 NICs with three faults that come and go."""
    draw = random.Random(number)
    planes = draw.choice((1, 2, 4))
    name = TRANSPORTS[number % len(TRANSPORTS)]
    settings = {} if name == "mrc" else {"reroute_delay_us": 1000.0, "failover_delay_us": 1000.0}
    faults = []
    for which in range(3):
        plane, at = draw.randrange(planes), 6.0 + 12 * which + draw.random()
        link = f"p{plane}-t0-{draw.randrange(8)}<>p{plane}-t1-{draw.randrange(8)}"
        change = draw.choice(({"down": link}, {"rate": f"{200 // planes}Gbps", "on": link}, {"loss": "1%", "on": link}))
        faults.append({"at": f"{at:.3f}ms", "for": f"{draw.uniform(2, 8):.3f}ms", **change})
    made = {
        "name": f"short {number}",
        "fabric": {
            "name": "64 NICs",
            "hosts": {"count": 64},
            "planes": [{"count": planes, "host_gbps": 400 / planes, "t0": {"down": 8, "up": 8}, "t1": {}}],
        },
        "transport": {"name": name, "qps": 4 if name.startswith("roce") else 1, "settings": settings},
        "workloads": [
            {"kind": "training_step", "steps": SHORT_STEPS, "compute": "250us", "jitter": 0.02,
             "collectives": [{"kind": "ring_all_reduce", "size": "2MiB", "group": 16, "placement": "strided"}]}
        ],
        "faults": faults,
        "until": "10s",
        "seed": number + 1,
    }  # fmt: skip
    return msgspec.convert(made, Scenario)


def compared(number: int, seed: int) -> Run:
    """Run a job both ways: the seed counts from 0."""
    return {"job": number, "seed": seed, **_both(short(number), 1 + number + 100 * seed)}


def print_table(runs: list[Run]) -> None:
    """Print a line a job, means over its seeds, and the largest difference of its times."""
    print(
        "| job | transport | seeds | steps simulated | plain, ms | once, ms | difference | plain, between seeds | "
        "lost, plain, us | lost, once, us | plain took, s | once, s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    worst = max(abs(_print_row(number, runs)) for number in sorted({run["job"] for run in runs}))
    print(f"largest difference {worst:.2f} %, goal {GOAL_PERCENT:g} %")


def _print_row(number: int, runs: list[Run]) -> float:
    """Print a job's line; return the difference of its times in percent."""
    seeds = list({run["seed"]: run for run in runs if run["job"] == number}.values())  # a seed run again: its last run
    mean = {name: float(np.mean([run[name] for run in seeds])) for name in seeds[0]}
    plain = [run["plain_ms"] for run in seeds]
    difference = 100 * (mean["once_ms"] / mean["plain_ms"] - 1)
    spread = f"{100 * np.std(plain, ddof=1) / mean['plain_ms']:.2f} %" if len(seeds) > 1 else ""
    lost = f"{mean['plain_lost_us']:,.0f} | {mean['once_lost_us']:,.0f} +- {mean['uncertain_us']:.0f}"
    print(
        f"| {number} | {short(number).transport.name} | {len(seeds)} | {mean['simulated']:.0f} of {SHORT_STEPS} | "
        f"{mean['plain_ms']:.3f} | {mean['once_ms']:.3f} | {difference:+.2f} % | {spread} | {lost} | "
        f"{mean['plain_s']:.0f} | {mean['once_s']:.0f} |"
    )
    return difference


def _both(scenario: Scenario, seed: int) -> Run:
    """Return times (ms), time lost (us) and its uncertainty, steps simulated and seconds taken, plain and once."""
    scenario = msgspec.structs.replace(scenario, seed=seed)
    begun = time.perf_counter()
    plain = np.array(result(simulate(scenario))["step_us"]["each"])
    took = time.perf_counter() - begun
    once = summary(run_steps(scenario))
    assert len(plain) == once["steps"] == SHORT_STEPS
    lost = float(plain.sum() - len(plain) * np.median(plain))
    return {
        "plain_ms": float(plain.sum()) / 1e3, "once_ms": 1e3 * once["job_s"], "plain_lost_us": lost,
        "once_lost_us": once["lost_us"], "uncertain_us": once["uncertain_us"], "simulated": once["steps_simulated"],
        "plain_s": took, "once_s": once["wall_s"],
    }  # fmt: skip


def _progress(begun: float) -> Any:
    def show(now: StepsProgress) -> None:
        print(
            f"{time.monotonic() - begun:6.1f} s: {now.job_ps / 1e12:10.4f} s of the job, {now.steps:,} steps, "
            f"{now.simulated} simulated",
            flush=True,
        )

    return show


def main() -> None:
    """Print the table, or the hour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hour", action="store_true")
    parser.add_argument("--nics", type=int, default=16_384)
    parser.add_argument("--size", default="64KiB", help="of the hour's all-reduce")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--flaps", type=int, default=FLAPS, help="of the hour")
    parser.add_argument("--first", type=int, default=0, help="of the flaps, or of the ten jobs")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1, help="of each of the ten jobs")
    parser.add_argument("--first-seed", type=int, default=0, help="of each of the ten jobs, counted from 0")
    parser.add_argument("--runs", type=Path, help="append each run of the ten jobs to this file, a JSON line each")
    parser.add_argument("--table", type=Path, help="print the table of the runs in this file, and run nothing")
    options = parser.parse_args()
    if options.hour:
        asked = hour(options.nics, options.size, options.first, options.flaps)
        found = summary(run_steps(asked, options.threads, _progress(time.monotonic())))
        for row in found.pop("disturbances"):
            print(row)
        print(found)
        print(f"processor time {time.process_time():.0f} s")
        if options.flaps == FLAPS:
            print(f"ratio to the goal: {GOAL_S / found['wall_s']:.2f}")
        return
    if options.table:
        print_table([json.loads(line) for line in options.table.read_text().splitlines()])
        return
    runs = []
    for number in range(options.first, options.first + options.count):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            runs.append(compared(number, seed))
            if options.runs:
                with options.runs.open("a") as file:
                    file.write(json.dumps(runs[-1]) + "\n")
    print_table(runs)


if __name__ == "__main__":
    main()
