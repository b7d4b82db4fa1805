"""What MRC does with many messages at once: all-to-all, incast, permutation on eight planes, RoCEv2 beside it.

MRC runs on eight planes of 100G in two tiers, RoCEv2 with PFC, DCQCN and one queue pair a flow on one plane of 800G in
three tiers (the two fabrics of scenarios/paper/expert-parallel*.yaml). Times are from the start to the last
acknowledgement: of a group (mean and slowest group) for all-to-all, of a flow for the others.

    python -m bench.sim.all_to_all                      every row, one seed
    python -m bench.sim.all_to_all --only 16KiB --mrc   rows whose name contains this, without RoCEv2
    python -m bench.sim.all_to_all --seeds 3 --json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from bench._support.finished import all_finished
from bench.sim.expert_parallel import PAPER, PLANES, SINGLE
from openmrc.sim.results.results import Run
from openmrc.sim.scenario.scenario import load
from openmrc.sim.simulate import simulate
from openmrc.sim.workloads.all_to_all import AllToAll
from openmrc.sim.workloads.families import Workload
from openmrc.sim.workloads.incast import Incast
from openmrc.sim.workloads.permutation import Permutation

NICS = 1024
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
    exchange(64, "64KiB", window=1),
    exchange(64, "64KiB", window=4),
    exchange(64, "64KiB", window=8),
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
    done = simulate(msgspec.structs.replace(made, workloads=(row.work,), seed=seed, until="50ms"))
    times = _times(done, row.group)
    counters = done.results.counters
    return {
        "row": row.name,
        "transport": done.transport,
        "seed": seed,
        "mean_us": float(times.mean()),
        "slowest_us": float(times.max()),
        "trimmed": int(done.results.links["trimmed"].sum()),
        **{name: int(counters.get(name, 0)) for name in COUNTERS},
        "wall_s": done.results.wall_s,
    }


def _times(run: Run, group: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return when each group, or each flow, had its last acknowledgement (us)."""
    finished = run.results.finished[run.work.moving]
    all_finished(run.name, finished)
    if group == 1:
        return finished / 1e6
    times: np.ndarray[tuple[int], np.dtype[np.float64]] = finished.reshape(-1, NICS // group, group).max(axis=(0, 2))
    return times / 1e6


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a Markdown table, means over seeds."""
    yield "| each sends | MRC: mean, us | slowest | trimmed | repeated | in vain | RoCEv2: slowest | MRC / RoCEv2 |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(line["row"] for line in lines):
        mrc, roce = ([line for line in lines if (line["row"], line["transport"]) == (name, kind)]
                     for kind in ("mrc", "roce"))  # fmt: skip
        mean, slowest, *counts = (_mean(mrc, what) for what in
                                  ("mean_us", "slowest_us", "trimmed", "retransmitted", "spurious"))  # fmt: skip
        theirs = _mean(roce, "slowest_us")
        cells = [f"{mean:.1f}", f"{slowest:.1f}", *(f"{count:,.0f}" for count in counts)]
        cells += [f"{theirs:.1f}", f"{slowest / theirs:.2f}"] if roce else ["", ""]
        yield f"| {name} | {' | '.join(cells)} |"


def _mean(lines: list[dict[str, Any]], what: str) -> float:
    return float(np.mean([line[what] for line in lines])) if lines else np.nan


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="rows whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--mrc", action="store_true", help="leave RoCEv2 out")
    parser.add_argument("--json", action="store_true", help="a line for each run")
    options = parser.parse_args()
    lines = []
    for row in [row for row in ROWS if not options.only or any(part in row.name for part in options.only)]:
        for file in (PLANES,) if options.mrc else (PLANES, SINGLE):
            for seed in range(1, options.seeds + 1):
                lines.append(measure(row, file, seed))
                if options.json:
                    print(json.dumps(lines[-1]), flush=True)
    if not options.json:
        print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
