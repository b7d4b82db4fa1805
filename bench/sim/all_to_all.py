"""What MRC does with many messages at once: all-to-all, incast, permutation on eight planes, RoCEv2 beside it.

MRC runs on eight planes of 100G in two tiers, RoCEv2 with PFC, DCQCN and one queue pair a flow on one plane of 800G in
three tiers (the two fabrics of scenarios/paper/expert-parallel*.yaml). Times are from the start to the last
acknowledgement: of a group (mean and slowest group) for all-to-all, of a flow for the others.

    python -m bench.sim.all_to_all                      every row, one seed
    python -m bench.sim.all_to_all --only 16KiB --mrc   rows whose name contains this, without RoCEv2
    python -m bench.sim.all_to_all --seeds 3 --json >> figures.jsonl
    python -m bench.sim.all_to_all --table figures.jsonl --write    the same, also in docs/evidence/all-to-all.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.sim.expert_parallel import PAPER, PLANES, SINGLE
from harness.figures import add_options, show
from harness.finished import all_finished
from openmrc.base.amounts import bytes_of
from openmrc.sim.network.reach import reaches
from openmrc.sim.results.summary import SimulationRun
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.collectives.all_to_all import AllToAll
from openmrc.sim.workloads.collectives.permutation import Permutation
from openmrc.sim.workloads.families import Incast, Workload
from openmrc.units import PS_PER_US

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence" / "all-to-all.md"
NICS = 1024
MTU, HEADER = 4096, MrcTransport().network.header
COUNTERS = ("retransmitted", "spurious", "inferred_losses", "timeouts")


@dataclass(frozen=True)
class Row:
    """A workload on 1,024 NICs, and how many NICs one of its times is of (1: a time for each flow)."""

    name: str
    work: Workload
    group: int = 1


def exchange(group: int, size: str, partners: int = 0, window: int = 0) -> Row:
    """Return an all-to-all in strided groups: each NIC sends to `partners` of its group, `window` at a time; 0: all."""
    work = AllToAll(size=size, group=group, placement="strided", rounds=partners, window=window)
    at_once = f", {window} at a time" if window else ""
    return Row(f"groups of {group}, {partners or group - 1} x {size}{at_once}", work, group)


ROWS = (
    exchange(64, "4KiB"),
    exchange(128, "4KiB"),
    exchange(256, "4KiB"),
    exchange(64, "16KiB"),
    exchange(128, "16KiB"),
    exchange(256, "16KiB"),
    exchange(64, "64KiB"),
    exchange(128, "64KiB"),
    exchange(256, "64KiB"),
    exchange(64, "256KiB"),
    exchange(128, "256KiB"),
    exchange(256, "256KiB"),
    exchange(64, "1MiB"),
    exchange(64, "4MiB"),
    *(exchange(64, size, window=window) for size in ("4KiB", "16KiB", "64KiB") for window in (1, 4, 8)),
    exchange(64, "256KiB", 7),
    exchange(64, "256KiB", 8),
    exchange(64, "256KiB", 16),
    exchange(64, "4MiB", 2),
    exchange(64, "4MiB", 4, window=1),
    Row("incast 31 x 2MiB", Incast(size="2MiB", senders=31)),
    Row("incast 127 x 64KiB", Incast(size="64KiB", senders=127)),
    Row("permutation 2MiB", Permutation(size="2MiB")),
)


def measure(row: Row, file: str, seed: int) -> dict[str, Any]:
    """Return the figures of one run; every flow must finish."""
    made = load(PAPER / file)
    done = simulate(msgspec.structs.replace(made, workloads=(row.work,), seed=seed, until="200ms"))
    times = _times(done, row.group)
    counters = done.results.counters
    return {
        "row": row.name,
        "transport": done.transport,
        "seed": seed,
        "mean_us": float(times.mean()),
        "slowest_us": float(times.max()),
        "bound_us": _bound_us(done, row),
        "trimmed": int(done.results.links["trimmed"].sum()),
        **{name: int(counters.get(name, 0)) for name in COUNTERS},
        "wall_s": done.results.wall_s,
    }


def _bound_us(run: SimulationRun, row: Row) -> float:
    """Return what any scheme takes at least (us): a NIC's bytes with headers at line rate, then one round trip.

    0 where this is no bound: with a limited number of messages at a time.
    """
    if row.group == 1 or not isinstance(row.work, AllToAll) or row.work.window:
        return 0.0
    size, partners = bytes_of(row.work.size), row.work.rounds or row.group - 1
    packets = -(-size // MTU)
    ports = reaches(run.topology, MTU, HEADER)
    rate = sum(port.rate for port in ports)
    return float(partners * (size + packets * HEADER) * 8e6 / rate + max(port.round_trip for port in ports) / PS_PER_US)


def _times(run: SimulationRun, group: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return when each group, or each flow, had its last acknowledgement (us)."""
    finished = run.results.finished[run.work.moving]
    all_finished(run.name, finished)
    if group == 1:
        return finished / 1e6
    times: np.ndarray[tuple[int], np.dtype[np.float64]] = finished.reshape(-1, NICS // group, group).max(axis=(0, 2))
    return times / 1e6


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a Markdown table of the slowest group or flow: mean, least and most over seeds."""
    yield "| each sends | seeds | MRC, us (trimmed) | RoCEv2, us | MRC / RoCEv2 | line rate and a round trip, us |"
    yield "|---|---|---|---|---|---|"
    for row in ROWS:
        mrc, roce = (
            [line for line in lines if (line["row"], line["transport"]) == (row.name, kind)] for kind in ("mrc", "roce")
        )
        if not mrc:
            continue
        ratio = f"{_mean(mrc, 'slowest_us') / _mean(roce, 'slowest_us'):.2f}" if roce else ""
        bound = f"{mrc[0]['bound_us']:.1f}" if mrc[0]["bound_us"] else ""
        yield (
            f"| {row.name} | {len({line['seed'] for line in mrc})} | {_spread(mrc)} ({_mean(mrc, 'trimmed'):,.0f}) "
            f"| {_spread(roce)} | {ratio} | {bound} |"
        )


def _spread(lines: list[dict[str, Any]]) -> str:
    times = [line["slowest_us"] for line in lines]
    if not times:
        return ""
    return f"{np.mean(times):.1f}" + (f", {min(times):.1f} to {max(times):.1f}" if len(times) > 1 else "")


def _mean(lines: list[dict[str, Any]], what: str) -> float:
    return float(np.mean([line[what] for line in lines])) if lines else np.nan


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="rows whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--mrc", action="store_true", help="leave RoCEv2 out")
    add_options(parser)
    options = parser.parse_args()
    rows = [row for row in ROWS if not options.only or any(part in row.name for part in options.only)]
    files = (PLANES,) if options.mrc else (PLANES, SINGLE)
    seeds = range(1, options.seeds + 1)
    runs = (measure(row, file, seed) for row in rows for file in files for seed in seeds)
    show(options, runs, table, PAGE, "all_to_all_sizes")


if __name__ == "__main__":
    main()
