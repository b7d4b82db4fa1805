"""How fast is the simulator on one thread, and how much faster on two?

    python -m bench.sim.speed              1,024 hosts, 2 tiers, 400 Gb/s, a 2 MB permutation, MRC
    python -m bench.sim.speed --hosts 8192 --threads 2
    python -m bench.sim.speed --all-to-all  also an all-to-all of the same bytes in groups of 64, and the permutation on
                                            as many queue pairs: their cost a hop

`--topo` and `--tm` take htsim's files instead of the generated fabric and permutation.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from harness.finished import all_finished
from openmrc.core.host_memory import peak_bytes
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import finish, prepare
from openmrc.sim.scenario.matrix import read
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import Traffic, traffic

GROUP = 64  # hosts of an all-to-all
MARK_S = {1024: 0.45, 8192: 4.5}
MARK_MB = {1024: 400.0, 8192: 1500.0}


def fabric(hosts: int) -> Topology:
    """Return a non-blocking leaf-spine fabric: 400 Gb/s, 1 us a link."""
    down = {128: 8, 1024: 32, 8192: 64}.get(hosts, 32)
    t0 = Tier(down=down, up_link_ns=1000, switch_ns=0)
    plane = Plane(t0=t0, t1=Tier(switch_ns=0), host_gbps=400, host_link_ns=1000)
    return build(Fabric(name=f"leaf-spine-{hosts}", hosts=Hosts(count=hosts), planes=(plane,)))


def permutation(hosts: int, size: int) -> Traffic:
    """Return one message from every host, one to every host."""
    order = np.random.default_rng(1).permutation(hosts)
    return traffic(order, np.roll(order, 1), size)


def all_to_all(hosts: int, size: int) -> Traffic:
    """Return an all-to-all in groups spread over the fabric, `size` bytes from every host."""
    groups = np.arange(hosts).reshape(GROUP, -1)  # a column for each
    partners = np.concatenate([np.roll(groups, -ahead, axis=0).ravel() for ahead in range(1, GROUP)])
    return traffic(np.tile(groups.ravel(), GROUP - 1), partners, size // (GROUP - 1))


def side_by_side(hosts: int, size: int) -> Traffic:
    """Return the permutation on as many queue pairs as the all-to-all has, `size` bytes from every host."""
    plain, count = permutation(hosts, size), GROUP - 1
    source, destination = np.tile(plain.source, count), np.tile(plain.destination, count)
    return traffic(source, destination, size // count, connection=np.repeat(np.arange(count), hosts))


def measure(topology: Topology, flows: Traffic, transport: Any, threads: int, runs: int) -> dict[str, float]:
    """Return the figures of the fastest of some runs."""
    best, cpu_s = None, float("inf")
    for _ in range(runs):
        world = prepare(topology, flows, transport, threads=threads)
        begun = time.process_time()
        results = finish(world, transport)
        cpu_s = min(cpu_s, time.process_time() - begun)
        if best is None or results.wall_s < best.wall_s:
            best = results
    assert best is not None
    all_finished(f"{topology.nics} NICs", best.finished)
    fct = (best.finished - best.started) / 1e6
    return {
        "hosts": topology.nics,
        "threads": threads,
        "finished": len(fct),
        "flows": flows.messages,
        "fct_mean_us": float(fct.mean()),
        "fct_max_us": float(fct.max()),
        "packet_hops": best.hops,
        "setup_s": best.setup_s,
        "wall_s": best.wall_s,
        "cpu_s": cpu_s,
        "m_hops_per_s": best.hops / best.wall_s / 1e6,
        "ns_per_hop": best.wall_s / best.hops * 1e9,
        "peak_rss_mb": peak_bytes() / 1e6,
        "result": zlib.crc32(best.finished.tobytes()),
    }


def main() -> None:
    """Print the figures and their ratio to the marks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--size", type=int, default=2_000_000)
    parser.add_argument("--threads", type=int, default=1, help="2: also measures one, and prints the ratio")
    parser.add_argument("--transport", choices=("mrc", "uet"), default="mrc")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--all-to-all", action="store_true")
    parser.add_argument("--topo")
    parser.add_argument("--tm")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    topology = build(load(options.topo)) if options.topo else fabric(options.hosts)
    flows = permutation(topology.nics, options.size)
    if options.tm:
        matrix = read(Path(options.tm))
        flows = traffic(matrix.source, matrix.destination, matrix.size, np.maximum(matrix.start, 0))
    transport = MrcTransport() if options.transport == "mrc" else UetTransport()
    rows = [measure(topology, flows, transport, threads, options.runs) for threads in sorted({1, options.threads})]
    if options.all_to_all:
        for flows in (side_by_side(topology.nics, options.size), all_to_all(topology.nics, options.size)):
            rows.append(measure(topology, flows, transport, 1, options.runs))
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        _show(row)
    if options.all_to_all:
        exchange, many, few = (row["cpu_s"] / row["packet_hops"] for row in (rows[-1], rows[-2], rows[0]))
        print(
            f"all-to-all, processor time a hop: {exchange / many:.2f} x a permutation on as many queue pairs "
            f"(mark 1.3), {exchange / few:.2f} x one on {rows[0]['flows']:,}"
        )
    if options.threads > 1:
        same = rows[0]["result"] == rows[1]["result"]
        print(f"two threads against one: {rows[0]['wall_s'] / rows[1]['wall_s']:.2f} x (mark 1.7), same bits: {same}")


def _show(row: dict[str, float]) -> None:
    print(", ".join(f"{name} {value:,.3f}".rstrip("0").rstrip(".") for name, value in row.items()))
    hosts = int(row["hosts"])
    if hosts in MARK_S:
        time, memory = MARK_S[hosts] / row["wall_s"], MARK_MB[hosts] / row["peak_rss_mb"]
        print(f"ratio to the marks: time {time:.2f}, memory {memory:.2f}")


if __name__ == "__main__":
    main()
