"""Do UET-style runs agree with uet-htsim, on the same matrices and topologies? MRC and RoCEv2 stand beside them.

The htsim figures were measured with github.com/ultraethernet/uet-htsim, commit 40ccb05, MTU 4160, 64 entropies; where
ten of its seeds were run the last flow's time is the mean over them, else one seed's. Ours are means over seeds.

    python -m bench.sim.agreement [--seeds 5] [--only reps] [--small] [--json]
    python -m bench.sim.agreement --write       all rows, also into docs/simulator/model.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.finished import all_finished
from harness.page import put
from harness.simulated_runs import run
from openmrc.fabric.model.build import build, load
from openmrc.sim.scenario.matrix import read
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.transport import RoceTransport
from openmrc.sim.transports.uet.spraying.names import LoadBalancing
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import Traffic, traffic
from openmrc.units import PS_PER_MS

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "sim" / "cases"
PAGE = ROOT / "docs" / "simulator" / "model.md"
HTSIM = {"header": 64, "trim_size": 64, "control_size": 64}  # its bytes on the wire, of every transport


@dataclass(frozen=True)
class Row:
    """One run of htsim: fabric, matrix, transport, last and mean flow completion time (us; 0: not measured)."""

    fabric: str
    matrix: str
    transport: str
    last: float
    mean: float
    seeds: int = 1

    @property
    def tolerance(self) -> float:
        """Return the share by which ours may differ."""
        return 0.05 if self.seeds > 1 else 0.08


ROWS = (
    Row("ls_128_400g", "perm_128_2MB", "oblivious", 1.218 * 48, 53.0, 10),
    Row("ls_128_400g", "perm_128_2MB", "reps", 1.188 * 48, 52.2, 10),
    Row("ls_128_400g", "perm_128_2MB", "bitmap", 1.125 * 48, 50.7, 10),
    Row("ls_128_400g", "perm_128_2MB", "mixed", 1.122 * 48, 50.5, 10),
    Row("ls_128_100g", "perm_128_2MB", "oblivious", 206.1, 182.3),
    Row("ls_128_100g", "perm_128_2MB", "bitmap", 189.2, 177.0),
    Row("ft3_128_400g", "perm_128_2MB", "oblivious", 1.281 * 52, 0.0, 10),
    Row("ft3_128_400g", "perm_128_2MB", "reps", 1.250 * 52, 58.7, 10),
    Row("ft3_128_400g", "perm_128_2MB", "bitmap", 1.260 * 52, 58.7, 10),
    Row("ft3_128_400g", "perm_128_2MB", "mixed", 1.234 * 52, 0.0, 10),
    Row("ft3_128_400g", "incast_32_of_128_2MB", "oblivious", 1340.4, 1094.0),
    Row("ft3_128_400g", "incast_32_of_128_2MB", "reps", 1334.5, 1097.5),
    Row("ft3_128_100g", "incast_32_of_128_2MB", "oblivious", 5252.3, 4650.4),
    Row("ft3_128_400g", "a2a_16_of_128_2MB", "reps", 620.5, 619.2),
    Row("ft3_128_400g", "a2a_16_of_128_2MB", "oblivious", 620.4, 619.2),
    Row("ls_1024_400g", "perm_1024_2MB", "reps", 59.6, 55.3),
    Row("ls_1024_400g", "perm_1024_2MB", "oblivious", 61.4, 56.1),
    Row("ft3_1024_400g", "perm_1024_2MB", "reps", 68.7, 61.2),
    Row("ft3_1024_400g", "perm_1024_2MB", "bitmap", 66.4, 60.2),
    Row("ft3_128_100g", "perm_128_2MB", "roce", 750.4, 411.5),
    Row("ls_128_400g", "perm_128_2MB", "roce", 177.3, 97.2),
    Row("ft3_128_400g", "incast_32_of_128_2MB", "roce", 1308.4, 1060.0),
)


def transport_named(name: str) -> Any:
    """Return the transport of a row: RoCEv2 with PFC and without DCQCN, MRC, or UET with a sprayer."""
    plain: Any = {"roce": RoceTransport(dcqcn=False), "mrc": MrcTransport(evs=64)}.get(name) or UetTransport(
        spraying=cast(LoadBalancing, name)
    )
    return replace(plain, network=replace(plain.network, **HTSIM))


def flows_of(matrix: str) -> Traffic:
    """Return the flows of a matrix; these have neither triggers nor late starts."""
    read_in = read(CASES / f"{matrix}.cm")
    return traffic(read_in.source, read_in.destination, read_in.size)


def measure(fabric: str, matrix: str, transport: str, seeds: int) -> dict[str, float]:
    """Return last and mean completion over seeds (us), with the spread of the last."""
    topology, flows = build(load(CASES / f"{fabric}.topo")), flows_of(matrix)
    last, mean, trimmed, wall = [], [], [], []
    for seed in range(1, seeds + 1):
        results = run(topology, flows, transport_named(transport), seed=seed, until=100 * PS_PER_MS)
        all_finished(f"{fabric} {matrix} {transport} seed {seed}", results.finished)
        fct = (results.finished - results.started) / 1e6
        last.append(fct.max())
        mean.append(fct.mean())
        trimmed.append(results.links["trimmed"].sum())
        wall.append(results.wall_s)
    return {
        "last_us": float(np.mean(last)),
        "last_spread_us": float(np.std(last)),
        "last_least_us": float(np.min(last)),
        "last_most_us": float(np.max(last)),
        "mean_us": float(np.mean(mean)),
        "mean_least_us": float(np.min(mean)),
        "mean_most_us": float(np.max(mean)),
        "trimmed": float(np.mean(trimmed)),
        "wall_s": min(wall),
    }


def compare(row: Row, seeds: int) -> dict[str, Any]:
    """Return one line of the table."""
    ours = measure(row.fabric, row.matrix, row.transport, seeds)
    last = ours["last_us"] / row.last
    mean = ours["mean_us"] / row.mean if row.mean else 1.0
    agrees = max(abs(last - 1), abs(mean - 1)) <= row.tolerance
    return {"fabric": row.fabric, "matrix": row.matrix, "transport": row.transport, **ours, "htsim_last_us": row.last,
            "htsim_mean_us": row.mean, "last_ratio": last, "mean_ratio": mean, "agrees": agrees}  # fmt: skip


def main() -> None:
    """Print the table, and write it where the docs have it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--small", action="store_true", help="leave out 1,024 hosts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="put words and table into docs/simulator/model.md")
    options = parser.parse_args()
    if options.write and (options.only or options.small):
        parser.error("--write wants all rows: leave out --only and --small")
    chosen = [row for row in ROWS if options.only in f"{row.fabric} {row.matrix} {row.transport}"]
    chosen = [row for row in chosen if not (options.small and "1024" in row.fabric)]
    lines = []
    for line in _measured(chosen, options.seeds):
        lines.append(line)
        _show(line, options.json)
    if options.write:
        put(PAGE, "agreement", "\n".join(_words(lines, options.seeds)))


def _measured(chosen: list[Row], seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of the rows, MRC's before the first of each fabric and matrix."""
    seen: set[tuple[str, str]] = set()
    for row in chosen:
        if (row.fabric, row.matrix) not in seen:
            seen.add((row.fabric, row.matrix))
            yield {"fabric": row.fabric, "matrix": row.matrix, "transport": "mrc",
                   **measure(row.fabric, row.matrix, "mrc", seeds)}  # fmt: skip
        yield compare(row, seeds)


def _words(lines: list[dict[str, Any]], seeds: int) -> Iterator[str]:
    """Yield what the docs say: the largest differences, and the table."""
    compared = [line for line in lines if "agrees" in line]
    for terms, mine in (
        ("UET's transport", [line for line in compared if line["transport"] != "roce"]),
        ("RoCEv2 with PFC over ECMP", [line for line in compared if line["transport"] == "roce"]),
    ):
        last, mean = (max(abs(line[f"{what}_ratio"] - 1) for line in mine) for what in ("last", "mean"))
        agree = sum(line["agrees"] for line in mine)
        yield f"{terms}: {agree} of {len(mine)} rows agree; the largest differences are {100 * last:.1f} % in the last"
        yield f"and {100 * mean:.1f} % in the mean completion time."
        yield ""
    yield f"Ours is the mean over {seeds} seeds with the least and the most; *ratio* is ours over htsim's, of the last"
    yield "flow and of the mean."
    yield ""
    yield "| fabric | matrix | transport | last flow, us | mean, us | htsim: last | mean | ratio | agrees |"
    yield "|---|---|---|---|---|---|---|---|---|"
    yield from map(_table_row, lines)


def _table_row(line: dict[str, Any]) -> str:
    ours = " | ".join(
        f"{line[f'{what}_us']:.1f} ({line[f'{what}_least_us']:.1f} to {line[f'{what}_most_us']:.1f})"
        for what in ("last", "mean")
    )
    theirs = " |  |  | "
    if "agrees" in line:
        mean = f"{line['htsim_mean_us']:.1f}" if line["htsim_mean_us"] else ""
        ratio = f"{line['last_ratio']:.3f}" + (f", {line['mean_ratio']:.3f}" if mean else "")
        theirs = f"{line['htsim_last_us']:.1f} | {mean} | {ratio} | {'yes' if line['agrees'] else '**no**'}"
    return f"| {line['fabric']} | {line['matrix']} | {line['transport']} | {ours} | {theirs} |"


def _show(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(line), flush=True)
        return
    text = f"{line['fabric']:14}{line['matrix']:22}{line['transport']:10}"
    text += f" last {line['last_us']:8.1f} +- {line['last_spread_us']:5.1f}  mean {line['mean_us']:8.1f}"
    if "agrees" in line:
        text += f"   htsim {line['htsim_last_us']:8.1f} {line['htsim_mean_us']:8.1f}"
        text += f"   x {line['last_ratio']:.3f} x {line['mean_ratio']:.3f} {'' if line['agrees'] else '  differs'}"
    print(text, flush=True)


if __name__ == "__main__":
    main()
