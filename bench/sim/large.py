"""Does the whole fabric of arXiv 2605.04333 fit: 131,072 NICs, 8 planes x 100 Gb/s, switches of 512 ports?

A 1 MiB permutation and one ring step (every NIC writes to its neighbour's), packet by packet, MRC.

`system_s` is mainly the kernel's time to supply pages. A virtual machine whose host takes freed memory back pays it in
every run, ten times what it costs where the memory is held.

    python -m bench.sim.large [--nics 131072] [--workload permutation|ring] [--threads 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import time

import numpy as np

from harness.finished import all_finished
from harness.simulated_runs import run
from openmrc.core.host_memory import peak_bytes
from openmrc.core.rows import column
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.sim.loop.run import World
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import Traffic, traffic
from openmrc.units import PS_PER_US, us_from_ps

MIB = 1 << 20
MARK_S, MARK_GB = 35.0, 8.0  # on two threads


def fabric(nics: int) -> Fabric:
    """Return eight two-tier planes whose T0s have as many uplinks as NICs; 256 and 256 at full size."""
    down = min(256, nics // 8)
    t0 = Tier(down=down, radix=2 * down, up_link_ns=1000, switch_ns=0)
    return Fabric(
        name="paper",
        hosts=Hosts(count=nics),
        planes=(Plane(t0=t0, t1=Tier(switch_ns=0), host_gbps=100, host_link_ns=1000, count=8),),
    )


def workload(name: str, nics: int, size: int, seed: int) -> Traffic:
    """Return a random permutation without fixed points, or a ring."""
    nic = np.arange(nics)
    if name == "ring":
        return traffic(nic, (nic + 1) % nics, size)
    order = np.random.default_rng(seed).permutation(nics)
    return traffic(order, np.roll(order, 1), size)


def measure(nics: int, name: str, size: int, evs: int, threads: int, loud: bool) -> dict[str, float]:
    """Return the figures of one run."""
    begun = time.perf_counter()
    topology = build(fabric(nics))
    flows = workload(name, nics, size, 1)

    def say(world: World) -> None:
        hops, passed = column(world.network.shards, "hops").sum(), time.perf_counter() - begun
        print(f"  {us_from_ps(world.now):.1f} us, {hops / 1e6:.0f} M hops, {passed:.0f} s", flush=True)

    results = run(
        topology, flows, MrcTransport(evs=evs), threads=threads, until=2000 * PS_PER_US, observe=say if loud else None
    )
    all_finished(f"{name} of {nics} NICs", results.finished)
    fct = results.finished - results.started
    return {
        "nics": nics,
        "flows": flows.messages,
        "finished": len(fct),
        "fct_max_us": us_from_ps(int(fct.max())),
        "fct_mean_us": us_from_ps(int(fct.mean())),
        "hops": results.hops,
        "hops_per_s": results.hops / results.wall_s,
        "ns_per_hop": results.wall_s / results.hops * 1e9,
        "setup_s": time.perf_counter() - begun - results.wall_s,
        "wall_s": results.wall_s,
        "total_s": time.perf_counter() - begun,
        "system_s": os.times().system,
        "peak_rss_gb": peak_bytes() / 1e9,
    }


def main() -> None:
    """Print the figures and their ratio to the mark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nics", type=int, default=131_072)
    parser.add_argument("--workload", choices=("permutation", "ring"), default="permutation")
    parser.add_argument("--size", type=int, default=MIB)
    parser.add_argument("--evs", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.nics, options.workload, options.size, options.evs, options.threads, not options.json)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:14} {value:,.2f}")
    print(f"ratio to the marks: time {MARK_S / figures['total_s']:.2f}, memory {MARK_GB / figures['peak_rss_gb']:.2f}")


if __name__ == "__main__":
    main()
