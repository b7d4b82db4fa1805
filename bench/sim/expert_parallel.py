"""Is MRC's all-to-all up to 35 % faster beyond 32,000 GPUs? Groups spread over the whole fabric, against RoCEv2.

Every NIC of the fabric belongs to a group and sends to `--rounds` of its partners at once, packet by packet: MRC on
eight planes in two tiers, RoCEv2 with PFC and DCQCN and 1 to 16 queue pairs on one plane in three tiers, and what tells
the reasons apart. Time is that of a group, from the start to its last acknowledgement, the mean over groups.

    python -m bench.sim.expert_parallel --nics 1024
    python -m bench.sim.expert_parallel --nics 32768 --only mrc --json >> figures.jsonl     one case a command
    python -m bench.sim.expert_parallel --table figures.jsonl                               what they come to
    python -m bench.sim.expert_parallel --table figures.jsonl --write                also in docs/evidence/all-to-all.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness.figures import add_options, show
from harness.finished import all_finished
from openmrc.base.amounts import bytes_of
from openmrc.core.host_memory import peak_bytes
from openmrc.sim.results.summary import SimulationRun
from openmrc.sim.scenario.description import Scenario, Transport, load
from openmrc.sim.simulate import simulate
from openmrc.sim.workloads.collectives.all_to_all import AllToAll
from openmrc.units import NEVER

ROOT = Path(__file__).parents[2]
PAPER, PAGE = ROOT / "scenarios" / "paper", ROOT / "docs" / "evidence" / "all-to-all.md"
PLANES, SINGLE = "expert-parallel.yaml", "expert-parallel-roce.yaml"


@dataclass(frozen=True)
class Case:
    """A fabric and a transport on it."""

    name: str
    file: str
    transport: Transport | None = None  # None: the file's


def roce(qps: int, name: Any = "roce", **settings: Any) -> Transport:
    return Transport(name=name, qps=qps, settings=settings)


CASES = (
    Case("mrc", PLANES),
    *(Case(f"roce-{qps}", SINGLE, roce(qps)) for qps in (1, 2, 4, 8, 16)),
    Case("roce-1-pfc", SINGLE, roce(1, dcqcn=False)),
    Case("roce-16-pfc", SINGLE, roce(16, dcqcn=False)),
    Case("roce-8-planes", PLANES, roce(8)),
    Case("roce-16-planes", PLANES, roce(16)),
    Case("roce-adaptive", SINGLE, roce(1, "roce_adaptive")),
    Case("mrc-single", SINGLE, Transport(settings={"evs": 64})),
)


def scenario(case: Case, options: argparse.Namespace, seed: int) -> Scenario:
    """Return the case's scenario at the size asked for."""
    made = load(PAPER / case.file)
    fabric: Any = made.fabric
    fabric = msgspec.structs.replace(fabric, hosts=msgspec.structs.replace(fabric.hosts, count=options.nics))
    work = AllToAll(size=options.size, group=options.group, placement=options.placement, rounds=options.rounds)
    transport = case.transport or made.transport
    return msgspec.structs.replace(made, fabric=fabric, workloads=(work,), transport=transport, seed=seed, until="20ms")


def measure(case: Case, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return the figures of one run."""
    done = simulate(scenario(case, options, seed))
    results = done.results
    members = min(options.group - 1, options.rounds or options.group)
    sent = members * bytes_of(options.size)
    times = _group_times(done, options.group, options.nics, options.placement)
    rate = sum(plane.host_gbps for plane in done.topology.fabric.planes_one_by_one())
    return {
        "case": case.name,
        "nics": options.nics,
        "group": options.group,
        "placement": options.placement,
        "rounds": members,
        "size": options.size,
        "seed": seed,
        "flows": len(done.work.moving),
        "finished": int((results.finished[done.work.moving] < NEVER).sum()),
        "group_us": float(times.mean()),
        "slowest_us": float(times.max()),
        "gbps": sent * 8e-3 / float(times.mean()),
        "of_line_rate": sent * 8e-3 / float(times.mean()) / rate,
        "retransmitted": int(results.counters.get("retransmitted", 0)),
        "trimmed": int(results.links["trimmed"].sum()),
        "hops": results.hops,
        "setup_s": results.setup_s,
        "wall_s": results.wall_s,
        "peak_rss_gb": peak_bytes() / 1e9,
    }


def _group_times(
    run: SimulationRun, group: int, nics: int, placement: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return when each group had its last acknowledgement (us); flows are in order of rounds, members by group."""
    finished = run.results.finished[run.work.moving]
    all_finished(run.name, finished)
    by_group = finished.reshape(-1, nics // group, group)
    times: np.ndarray[tuple[int], np.dtype[np.float64]] = by_group.max(axis=(0, 2)) / 1e6
    return times


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a Markdown table, a row for each traffic: MRC's time, rate and trims, and how much longer the others take.

    Times are those of a group, means over groups and seeds. Where MRC was not run, the others' times stand alone.
    """
    cases = [case.name for case in CASES if case.name != "mrc" and any(line["case"] == case.name for line in lines)]
    yield "| NICs | groups of | each sends | mrc: us | slowest | of line rate | trimmed | " + " | ".join(cases) + " |"
    yield "|---" * (7 + len(cases)) + "|"
    for key in sorted({_key(line) for line in lines}):
        yield _row(key, cases, [line for line in lines if _key(line) == key])


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["nics"], line["rounds"], line["size"], line["group"], line["placement"]


def _row(key: tuple[Any, ...], cases: list[str], lines: list[dict[str, Any]]) -> str:
    nics, rounds, size, group, placement = key
    by_case = {name: [line for line in lines if line["case"] == name] for name in ("mrc", *cases)}
    placed = "" if placement == "strided" else f", {placement}"
    begins = f"| {nics:,} | {group}{placed} | {rounds} x {size} | "
    if not by_case["mrc"]:
        alone = [f"{_mean(by_case[name], 'group_us'):.1f} us" if by_case[name] else "" for name in cases]
        return f"{begins}not run | | | | {' | '.join(alone)} |"
    time, slowest, rate = (_mean(by_case["mrc"], what) for what in ("group_us", "slowest_us", "of_line_rate"))
    trimmed = _mean(by_case["mrc"], "trimmed")
    longer = [
        f"{100 * (_mean(by_case[name], 'group_us') / time - 1):+.0f} %" if by_case[name] else "" for name in cases
    ]
    return f"{begins}{time:.1f} | {slowest:.1f} | {100 * rate:.0f} % | {trimmed:,.0f} | {' | '.join(longer)} |"


def _mean(lines: list[dict[str, Any]], what: str) -> float:
    return float(np.mean([line[what] for line in lines])) if lines else np.nan


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nics", type=int, default=1024)
    parser.add_argument("--group", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7, help="partners of each NIC, 0: all of the group")
    parser.add_argument("--size", default="256KiB", help="of each message")
    parser.add_argument("--placement", choices=("strided", "random"), default="strided")
    parser.add_argument("--only", nargs="*", default=[], choices=[case.name for case in CASES])
    parser.add_argument("--seeds", type=int, default=1)
    add_options(parser)
    options = parser.parse_args()
    cases = [case for case in CASES if not options.only or case.name in options.only]
    runs = (measure(case, options, seed) for case in cases for seed in range(1, options.seeds + 1))
    show(options, runs, table, PAGE, "expert_parallel")


if __name__ == "__main__":
    main()
