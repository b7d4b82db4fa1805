"""What does a small loss cost, and what of the rest pays for it: rings, all-to-alls, incasts, failures, another tree.

A change of loss recovery or of congestion control has to help where packets are lost and harm nowhere else, so one run
prints both, means over some seeds:

* `kept`: the rate of a ring all-reduce of 64 NICs with 0.1 or 1 % loss on all planes, of that without; the
  mark is 0.75 for 4 MiB and 0.1 %.
* `starved`: the longest time (us) during which some flow of scenarios/paper/links-down-one-by-one.yaml got less than a
  tenth of its fair share, the worst of the seeds; the mark is 1,000.
* times (us) until the last byte of all-to-alls, incasts, a permutation and of scenarios with failures is acknowledged.

    python -m bench.sim.small_loss                      three seeds, a minute and a half
    python -m bench.sim.small_loss --against ../before  also the engine of another source tree, and the ratios
    python -m bench.sim.small_loss --only ring --json

A ratio above 1 is better, whichever way a figure counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.sim import all_to_all
from bench.sim.published import figure, of_file, run, workloads
from harness import simulated_runs
from harness.finished import all_finished
from openmrc.core.rows import column
from openmrc.sim.loop import run as loop
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare
from openmrc.sim.transports.mrc.transport import Mrc
from openmrc.units import PS_PER_US

Ints = NDArray[np.int64]

MARK_KEPT, MARK_STARVED_US = 0.75, 1000.0
TENTH = 0.1
SMALL_LOSS, GREAT_LOSS = ({"loss": "0.1%"},), ({"loss": "1%"},)
CABLES, CABLE_GBPS, PAIRS = 32, 100, 4  # of the T0 that loses its uplinks
SAMPLE_US = 5


@dataclass(frozen=True)
class Guard:
    """One figure: what it is, how to get it for a seed, and which way it counts."""

    name: str
    measure: Callable[[int], float]
    more_is_better: bool = False
    worst: bool = False  # of the seeds, instead of the mean
    limit: float | None = None

    def total(self, values: list[float]) -> float:
        """Return the figure of several seeds."""
        if not self.worst:
            return float(np.mean(values))
        return min(values) if self.more_is_better else max(values)

    def ratio(self, here: float, there: float) -> float:
        """Return how much better `here` is; 1 if both are nothing."""
        better, worse = (here, there) if self.more_is_better else (there, here)
        return better / worse if worse else float(better == worse) or np.inf

    def verdict(self, value: float) -> str:
        """Return what the mark is and whether it is met; empty without one."""
        if self.limit is None:
            return ""
        is_met = value >= self.limit if self.more_is_better else value <= self.limit
        return f"{self.limit:g}, {'met' if is_met else 'missed'}"


def kept(size: str, loss: tuple[Any, ...]) -> Callable[[int], float]:
    """Return the measure of what a lossy ring keeps of its rate."""

    def share(seed: int) -> float:
        work = workloads("ring-all-reduce", size=size)
        clean, lossy = (
            figure(run("ring-all-reduce", workloads=work, faults=faults, seed=seed)[1], "last_finish_us")
            for faults in ((), loss)
        )
        return clean / lossy

    return share


def last_finish(name: str, **changes: Any) -> Callable[[int], float]:
    """Return the measure of when a file of scenarios/paper is done (us)."""
    return lambda seed: figure(run(name, seed=seed, **changes)[1], "last_finish_us")


def slowest(name: str) -> Callable[[int], float]:
    """Return the measure of the slowest group or flow (us) of a row of `bench.sim.all_to_all`."""
    row = next(row for row in all_to_all.ROWS if row.name == name)
    return lambda seed: float(all_to_all.measure(row, all_to_all.PLANES, seed)["slowest_us"])


def starved(seed: int) -> float:
    """Return for how long (us) the most starved flow got less than a tenth of its share of the uplinks left."""
    scenario = of_file("links-down-one-by-one")
    prepared = prepare(scenario)
    at: list[int] = []
    arrived: list[Ints] = []

    def observe(world: loop.World) -> None:
        if not at or world.now >= at[-1] + SAMPLE_US * PS_PER_US:
            assert isinstance(world.state, Mrc)
            at.append(world.now)
            arrived.append(column(world.state.engine.qps, "received_bytes").copy())

    done = simulated_runs.run(
        prepared.topology,
        prepared.work.traffic,
        transport_of(scenario.transport, prepared.topology),
        broken=prepared.faults,
        seed=seed,
        observe=observe,
    )
    all_finished(scenario.name, done.finished)
    times, received = np.array(at), np.array(arrived)
    failures = np.array([event.at for event in prepared.events])
    cables = CABLES - np.searchsorted(failures, times[1:], side="right")
    share = np.append(0.0, np.cumsum(np.diff(times) * (TENTH * CABLE_GBPS / PAIRS / 8000) * cables))  # bytes
    return max(_longest_fall(times, flow, share) for flow in received.T if flow[-1] > 0) / PS_PER_US


def _longest_fall(times: Ints, received: Ints, share: NDArray[np.float64]) -> int:
    """Return the longest time (ps), before the last arrival, in which a flow received less than its share."""
    until = int(np.argmax(received == received[-1])) + 1
    ahead = received[:until] - share[:until]
    falls = (
        int(times[begin + np.flatnonzero(ahead[begin:] <= ahead[begin])[-1]] - times[begin]) for begin in range(until)
    )
    return max(falls)


GUARDS = (
    Guard("ring of 4 MiB, 0.1 % loss: kept", kept("4MiB", SMALL_LOSS), True, limit=MARK_KEPT),
    Guard("ring of 16 MiB, 0.1 % loss: kept", kept("16MiB", SMALL_LOSS), True),
    Guard("ring of 4 MiB, 1 % loss: kept", kept("4MiB", GREAT_LOSS), True),
    Guard("ring of 4 MiB", last_finish("ring-all-reduce", workloads=workloads("ring-all-reduce", size="4MiB"))),
    Guard("links down one by one: starved", starved, worst=True, limit=MARK_STARVED_US),
    Guard("links down one by one", last_finish("links-down-one-by-one")),
    Guard("all-to-all of 64", last_finish("all-to-all")),
    Guard("all-to-all of 64, 0.1 % loss", last_finish("all-to-all", faults=SMALL_LOSS)),
    *(Guard(f"1,024 NICs: {name}", slowest(name)) for name in (
        "groups of 64, 63 x 16KiB", "groups of 64, 63 x 64KiB", "groups of 64, 7 x 256KiB", "incast 31 x 2MiB",
        "incast 127 x 64KiB", "permutation 2MiB",
    )),
    Guard("incast of 7 and a victim", last_finish("incast-victim")),
    Guard("a port of a NIC down", last_finish("nic-link-down")),
    Guard("a T0 dead", last_finish("t0-failure")),
    Guard("a T1 reboots", last_finish("t1-reboot")),
    Guard("four cables flap", last_finish("transceiver-glitch")),
)  # fmt: skip


def measured(only: list[str], seeds: int) -> dict[str, list[float]]:
    """Return each figure's values, one a seed."""
    return {
        guard.name: [guard.measure(seed) for seed in range(1, seeds + 1)]
        for guard in GUARDS
        if not only or any(part in guard.name for part in only)
    }


def measured_by(tree: Path, only: list[str], seeds: int) -> dict[str, list[float]]:
    """Return what this file measures with the engine of another tree."""
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--json", "--seeds", str(seeds)]
    if only:
        command += ["--only", *only]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(tree.resolve())}, cwd=tree, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def show(here: dict[str, list[float]], there: dict[str, list[float]]) -> None:
    """Print a table: mark, figure, and with another tree its figure and the ratio."""
    print(f"{'':44} {'mark':>14} {'figure':>10}" + (f" {'there':>10} {'ratio':>7}" if there else ""))
    for guard in GUARDS:
        if guard.name not in here:
            continue
        value = guard.total(here[guard.name])
        line = f"{guard.name:44} {guard.verdict(value):>14} {value:10.2f}"
        if there:
            before = guard.total(there[guard.name])
            line += f" {before:10.2f} {guard.ratio(value, before):7.3f}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="figures whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="a source tree whose engine is measured as well")
    parser.add_argument("--json", action="store_true", help="the values of each seed")
    wanted = parser.parse_args()
    here = measured(wanted.only, wanted.seeds)
    if wanted.json:
        print(json.dumps(here))
        return
    show(here, measured_by(wanted.against, wanted.only, wanted.seeds) if wanted.against else {})


if __name__ == "__main__":
    main()
