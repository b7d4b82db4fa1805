"""How long does the simulation of one training step take while cables flap?

The fabric, the transport and the step of scenarios/step-under-flaps-8192.yaml: 500 us of computation, then a ring
all-reduce in groups of 16 spread over the fabric. Three cables of every plane go down for 2 ms, 100 us into the
all-reduce.

    python -m bench.sim.training_step                               16,384 NICs, an all-reduce of 2 MiB
    python -m bench.sim.training_step --nics 65536 --threads 2
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import msgspec

from harness.finished import all_finished
from openmrc.core.host_memory import peak_bytes
from openmrc.fabric.model.description import Fabric, Hosts
from openmrc.sim.scenario.description import Scenario, load
from openmrc.sim.simulate import simulate
from openmrc.sim.workloads.collectives.ring import RingAllReduce
from openmrc.sim.workloads.training_step import TrainingStep

FILE = Path(__file__).parents[2] / "scenarios" / "step-under-flaps-8192.yaml"
MARK_S = {16_384: 40.0, 65_536: 90.0}
CABLES = ("t0-003<>p{0}-t1-07", "t0-111<>p{0}-t1-20", "t0-219<>p{0}-t1-02")


def scenario(nics: int, size: str) -> Scenario:
    """Return one step on a fabric of this size, its flaps in the all-reduce."""
    made = load(FILE)
    assert isinstance(made.fabric, Fabric)
    fabric = msgspec.structs.replace(made.fabric, name=f"{nics:,} NICs", hosts=Hosts(count=nics // 4, nics=4))
    collective = RingAllReduce(size=size, group=16, placement="strided")
    step = TrainingStep(steps=1, compute="500us", jitter=0.02, collectives=(collective,))
    planes = range(fabric.planes[0].count)
    faults = tuple(
        {"at": "600us", "for": "2ms", "down": f"p{plane}-{cable.format(plane)}"} for plane in planes for cable in CABLES
    )
    return msgspec.structs.replace(made, name="step", fabric=fabric, workloads=(step,), faults=faults)


def measure(nics: int, size: str, threads: int) -> dict[str, Any]:
    """Return the figures of one run."""
    done = simulate(scenario(nics, size), threads=threads)
    results = done.results
    all_finished(f"the step of {nics} NICs", results.finished)
    return {
        "nics": nics,
        "threads": threads,
        "step_us": float(results.finished.max()) / 1e6,
        "lost_on_links": int(results.links["lost"].sum()),
        "packet_hops": results.hops,
        "ns_per_hop": results.wall_s / results.hops * 1e9,
        "setup_s": results.setup_s,
        "wall_s": results.wall_s,
        "total_s": results.setup_s + results.wall_s,
        "peak_rss_gb": peak_bytes() / 1e9,
    }


def main() -> None:
    """Print the figures and the ratio to the mark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nics", type=int, default=16_384)
    parser.add_argument("--size", default="2MiB", help="of the all-reduce")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.nics, options.size, options.threads)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:14} {value:,.2f}")
    if options.nics in MARK_S:
        print(f"ratio to the mark: {MARK_S[options.nics] / figures['total_s']:.2f}")


if __name__ == "__main__":
    main()
