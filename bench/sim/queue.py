"""How much does the queue without events differ from a real one, with acknowledgements in strict priority?

The same MRC runs with both kinds of port, nothing paused, trimmed or dropped, so that only the approximation differs:
a control packet delays the data behind it instead of the data that waits, and guesses the packet in service.

    python -m bench.sim.queue [--seeds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.finished import all_finished
from harness.simulated_runs import run
from openmrc.fabric.model.build import build, load
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Trimming
from openmrc.sim.scenario.matrix import read
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import PS_PER_MS

CASES = Path(__file__).parents[2] / "tests" / "sim" / "cases"
QUICK = NetworkSettings(trimming=Trimming.NEVER, buffer_bdp=0, ecn_last_hop=False)
REAL = replace(QUICK, lossless=True, pause_packets=1 << 16)


def measure(fabric: str, matrix: str, seeds: int) -> dict[str, float | str]:
    """Return the relative differences, quick against real, of completion times and of the longest queue."""
    topology, flows = build(load(CASES / f"{fabric}.topo")), read(CASES / f"{matrix}.cm")
    messages = traffic(flows.source, flows.destination, flows.size)
    last, mean, peak = [], [], []
    for seed in range(1, seeds + 1):
        times = []
        for settings in (QUICK, REAL):
            results = run(topology, messages, MrcTransport(network=settings), seed=seed, until=50 * PS_PER_MS)
            all_finished(f"{fabric} {matrix} seed {seed}", results.finished)
            fct = results.finished - results.started
            times.append((fct.max(), fct.mean(), results.links["peak"].max()))
        quick, real = times
        last.append(quick[0] / real[0] - 1)
        mean.append(quick[1] / real[1] - 1)
        peak.append(quick[2] / real[2] - 1)
    return {"fabric": fabric, "matrix": matrix, "last": float(np.mean(last)), "mean": float(np.mean(mean)),
            "last_worst_seed": float(np.abs(last).max()), "peak": float(np.mean(peak))}  # fmt: skip


def main() -> None:
    """Print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for fabric, matrix in (
        ("ls_128_400g", "perm_128_2MB"),
        ("ft3_128_400g", "perm_128_2MB"),
        ("ft3_128_400g", "incast_32_of_128_2MB"),
    ):
        line = measure(fabric, matrix, options.seeds)
        if options.json:
            print(json.dumps(line), flush=True)
            continue
        print(
            f"{fabric:14}{matrix:22} last {line['last']:+.3%} (worst seed {line['last_worst_seed']:.3%}) "
            f"mean {line['mean']:+.3%} longest queue {line['peak']:+.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
