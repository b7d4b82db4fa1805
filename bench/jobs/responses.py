"""What does each failure of the network cost a collective? Measured packet by packet, for every transport.

Training steps of one collective on a small fabric; a part fails within the third step. From the steps' lengths follow

- `slow`: the collective's time while the failure lasts, relative to its time before, in the same run;
- `transient_us`: what the failure costs once, beyond that;
- `stops`: connections end in error, so the job stops.

    python -m bench.jobs.responses --to runs/responses.jsonl             measures what is missing, about half an hour
    python -m bench.jobs.responses --to runs/responses.jsonl --assemble  writes openmrc/planner/responses.json
    python -m bench.jobs.responses --to runs/mrc.jsonl --only mrc            one network; --assemble keeps the others
    python -m bench.jobs.responses --gbps 400 --to runs/400.jsonl            a table for NICs of another rate, then
    python -m bench.jobs.responses --gbps 400 --to runs/400.jsonl --assemble --table runs/400.json
    python -m bench.jobs.responses --planes 4 --to runs/4.jsonl              and of another number of planes
    python -m bench.jobs.responses --rates     do rows carry to NICs of another rate? A part of the table at four rates
    python -m bench.jobs.responses --by-planes     and to another number of planes?

RoCE's routing reacts after REROUTE_US here, not after its default of 100 ms; the month adds what is missing, and
`fabric_link` at two delays shows that it adds up.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import openmrc
from openmrc.api import Simulation
from openmrc.planner.response_table import FILE, MULTIPLANE

HEALTHY, LATER = 2, 4  # steps before the failure, and those after it that have settled
SETTLE = 2  # steps from the failure on that may differ from the later ones
REROUTE_US = 200.0
LATE_US = 3200.0  # later than a retransmission timeout, so that it shows
SEEDS = (1, 2)
SIZES = (64, 256)  # NICs
LARGEST = 1 << 22  # bytes a NIC sends in a step
GBPS, PLANES = 800, 8  # of a NIC; of networks of many planes
RATES, PLANE_NUMBERS = (200, 400, 800, 1600), (2, 4, 8, 16)
MEASURED_BY_RATE = ("mrc", "uet", "roce", "roce_adaptive")
COMPARED = ("nic_link", "nic_slow", "nic_grey_1e-2", "fabric_link", "t1")
SWITCH, LINK = 250, 300  # ns
FLAP = "100us"  # down for so long; the transient is without the outage itself


@dataclass(frozen=True)
class Nic:
    """What NICs are measured, and on how many planes where a network has many."""

    gbps: float = GBPS
    planes: int = PLANES
    settle: int = SETTLE  # steps that count as transient

    def ports(self, network: Network) -> int:
        """Return how many ports it has on a network."""
        return self.planes if network.name in MULTIPLANE else network.planes


@dataclass(frozen=True)
class Network:
    """A fabric with the transport that runs on it."""

    name: str
    planes: int  # unless the NIC says another number
    transport: dict[str, Any]


_ROCE = {"qps": 16, "settings": {"reroute_delay_us": REROUTE_US}}
NETWORKS = {
    each.name: each
    for each in (
        Network("mrc", PLANES, {"name": "mrc"}),
        Network("uet", PLANES, {"name": "uet", "settings": {"reroute_delay_us": REROUTE_US,
                                                       "failover_delay_us": REROUTE_US}}),
        Network("roce", 1, {"name": "roce", **_ROCE}),
        Network("roce_adaptive", 1, {"name": "roce_adaptive", **_ROCE}),
        Network("roce_dual", 2, {"name": "roce", "qps": 16, "settings": {"reroute_delay_us": REROUTE_US,
                                                                        "failover_delay_us": REROUTE_US}}),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One point of the table."""

    network: str
    collective: str
    kind: str
    nics: int
    seed: int

    @property
    def key(self) -> str:
        return "/".join(map(str, (self.network, self.collective, self.kind, self.nics, self.seed)))


def fabric(nics: int, planes: int, gbps: float) -> dict[str, Any]:
    """Return a two-tier fabric without oversubscription."""
    tier = {"switch_ns": SWITCH, "up_link_ns": LINK}
    t0 = {"down": uplinks(nics), "up": uplinks(nics), **tier}
    plane = {"count": planes, "host_gbps": gbps / planes, "host_link_ns": LINK, "t0": t0, "t1": {"switch_ns": SWITCH}}
    return {"name": f"{nics} NICs", "hosts": {"count": nics}, "planes": [plane]}


def uplinks(nics: int) -> int:
    """Return the uplinks of a T0, as many as it has NICs."""
    return 8 if nics <= SIZES[0] else 16


def collective(name: str) -> dict[str, Any]:
    """Return a collective in which each NIC sends LARGEST bytes; rings are cut after four of their steps."""
    match name:
        case "all_reduce":
            return {
                "kind": "ring_all_reduce",
                "size": LARGEST // 4 * 16,
                "group": 16,
                "steps": 4,
                "placement": "random",
            }
        case "all_to_all":
            return {"kind": "all_to_all", "size": LARGEST // 15, "group": 16, "placement": "random"}
    return {"kind": "permutation", "size": LARGEST}


# Of each kind: the fault, with {plane} for the rate of a port; which networks; whether it comes and goes.
LASTING = {
    "nic_link": [{"down": "h1 port 0"}],
    "nic_link_2": [{"down": f"h1 port {port}"} for port in range(2)],
    "nic_link_3": [{"down": f"h1 port {port}"} for port in range(3)],
    "nic_link_4": [{"down": f"h1 port {port}"} for port in range(4)],
    "nic_link_unnoticed": [{"down": "h1 port 0"}],
    "nic_grey_1e-2": [{"loss": "1%", "on": "h1 port 0"}],
    "nic_grey_1e-3": [{"loss": "0.1%", "on": "h1 port 0"}],
    "nic_grey_1e-4": [{"loss": "0.01%", "on": "h1 port 0"}],
    "nic_slow": [{"rate": "half", "on": "h1 port 0"}],
    "fabric_link": [{"down": "1 links of p0-t0-00"}],
    "fabric_link_late": [{"down": "1 links of p0-t0-00"}],  # rerouted after LATE_US
    "fabric_grey_1e-2": [{"loss": "1%", "on": "1 links of p0-t0-00"}],
    "fabric_grey_1e-3": [{"loss": "0.1%", "on": "1 links of p0-t0-00"}],
    "fabric_slow": [{"rate": "half", "on": "1 links of p0-t0-00"}],
    "t1": [{"down": "p0-t1-00"}],
    "t0": [{"down": "p0-t0-00"}],
    "plane": [{"down": "plane 0"}],
    "two_nics": [{"down": "h1 port 0"}, {"down": "h40 port 0"}],  # are two failures as slow as one?
}
PASSING = {
    "nic_flap": [{"down": "h1 port 0", "for": FLAP}],
    "nic_burst": [{"loss": "20%", "on": "h1 port 0", "for": FLAP}],
    "fabric_flap": [{"down": "1 links of p0-t0-00", "for": FLAP}],
    "fabric_burst": [{"loss": "20%", "on": "1 links of p0-t0-00", "for": FLAP}],
}
PLANES_NEEDED = {"nic_link_2": 4, "nic_link_3": 4, "nic_link_4": 8, "plane": 2, "two_nics": 2, "t0": 2}
AT_BOTH_SIZES = ("nic_link", "fabric_link", "t1", "nic_grey_1e-3", "fabric_flap", "nic_slow")
COLLECTIVES = ("all_reduce", "all_to_all", "point_to_point")


def cases(nic: Nic) -> Iterator[Case]:
    """Yield all points, the most needed first."""
    for nics in SIZES:
        for kind in (*LASTING, *PASSING):
            if nics != SIZES[0] and kind not in AT_BOTH_SIZES:
                continue
            for network in NETWORKS.values():
                if not _applies(kind, network, nic):
                    continue
                for name in COLLECTIVES:
                    yield from (Case(network.name, name, kind, nics, seed) for seed in SEEDS)


def _applies(kind: str, network: Network, nic: Nic) -> bool:
    if kind == "nic_link_unnoticed":
        return network.name == "mrc"
    if kind == "fabric_link_late":
        return network.name.startswith("roce")
    return nic.ports(network) >= PLANES_NEEDED.get(kind, 1)


def scenario(case: Case, at_us: float, nic: Nic) -> dict[str, Any]:
    """Return the scenario of a case whose failure strikes at a time; a time below zero: never."""
    network = NETWORKS[case.network]
    transport = json.loads(json.dumps(network.transport))
    if case.kind == "nic_link_unnoticed":
        transport.setdefault("settings", {})["port_remap_delay_us"] = 1e6
    if case.kind == "fabric_link_late":
        transport["settings"]["reroute_delay_us"] = LATE_US
    ports = nic.ports(network)
    rate = f"{nic.gbps / 2 / ports:g}Gbps"
    faults = [
        {"at": f"{at_us:.3f}us", **{word: rate if value == "half" else value for word, value in fault.items()}}
        for fault in (LASTING | PASSING)[case.kind]
    ]
    step = {"kind": "training_step", "steps": HEALTHY + nic.settle + LATER, "compute": "1us", "jitter": 0.0,
            "collectives": [collective(case.collective)]}  # fmt: skip
    return {
        "name": case.key, "fabric": fabric(case.nics, ports, nic.gbps), "transport": transport,
        "workloads": [step], "faults": faults if at_us >= 0 else [], "until": "300ms",
        "sampling": {"flows": 0, "around_faults": "0us"},
    }  # fmt: skip


def measured(case: Case, before: dict[str, Simulation], nic: Nic) -> dict[str, Any]:
    """Measure one point; `before` keeps the run without a failure."""
    alone = f"{case.network}/{case.collective}/{case.nics}/{case.seed}/{nic}"
    if alone not in before:
        before.clear()
        before[alone] = openmrc.simulate(scenario(case, -1.0, nic), seed=case.seed)
    calm = before[alone].summary["step_us"]["each"]
    at = sum(calm[:HEALTHY]) + 0.5 * calm[HEALTHY]
    begun = time.perf_counter()
    run = openmrc.simulate(scenario(case, at, nic), seed=case.seed)
    each = run.summary["step_us"]["each"]
    base = statistics.fmean(calm[1:])
    row: dict[str, Any] = {
        **asdict(case),
        "healthy_us": round(base, 3),
        "planes": nic.ports(NETWORKS[case.network]),
        "uplinks": uplinks(case.nics),
        "retransmitted": run.summary["packets"]["retransmitted"],
        "wall_s": round(time.perf_counter() - begun, 2),
        "failed": run.summary["errors"]["queue_pairs"],
    }
    if len(each) < HEALTHY + nic.settle + LATER:
        return row | {"stops": run.summary["errors"]["queue_pairs"] > 0, "steps": len(each)}
    settled = HEALTHY + nic.settle
    later, calm_later = each[settled:], calm[settled:]
    slow = 1.0 if case.kind in PASSING else statistics.fmean(later) / statistics.fmean(calm_later)
    hit = each[HEALTHY:] if case.kind in PASSING else each[HEALTHY:settled]
    usual = calm[HEALTHY : HEALTHY + len(hit)]
    transient = sum(took - slow * plain for took, plain in zip(hit, usual, strict=True))
    return row | {"stops": False, "slow": round(slow, 5), "transient_us": round(transient, 2)}


def main() -> None:
    """Measure, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path("runs/responses.jsonl"), help="rows so far, one a line")
    parser.add_argument("--only", default="", help="measure only points whose name begins so")
    parser.add_argument("--queue-pairs", action="store_true", help="print RoCE's collectives by their queue pairs")
    parser.add_argument("--rates", action="store_true", help="print a part of the table at several rates of the NICs")
    parser.add_argument("--assemble", action="store_true", help="write the table of the package from the rows")
    parser.add_argument("--by-planes", action="store_true", help="print a part of the table by the number of planes")
    parser.add_argument("--gbps", type=float, default=GBPS, help="of a NIC")
    parser.add_argument("--planes", type=int, default=PLANES, choices=PLANE_NUMBERS, help="of networks of many planes")
    parser.add_argument("--settle", type=int, default=SETTLE, help="steps of a failure that count as transient")
    parser.add_argument("--table", type=Path, default=FILE, help="written by --assemble")
    parser.add_argument("--commit", default="", help="of the simulator that made the rows [the last here]")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.to.read_text().splitlines()] if options.to.exists() else []
    if options.queue_pairs:
        _by_queue_pairs()
        return
    if options.rates:
        _compared({f"{gbps}G": Nic(gbps=gbps) for gbps in RATES}, MEASURED_BY_RATE, options.only)
        return
    if options.by_planes:
        _compared({f"{planes} planes": Nic(planes=planes) for planes in PLANE_NUMBERS}, MULTIPLANE, options.only)
        return
    nic = Nic(options.gbps, options.planes, options.settle)
    if options.assemble:
        _assemble(rows, options.commit or _commit(), options.table, nic)
        return
    have = {Case(**{name: row[name] for name in Case.__dataclass_fields__}) for row in rows}
    wanted = [case for case in cases(nic) if case not in have and case.key.startswith(options.only)]
    options.to.parent.mkdir(parents=True, exist_ok=True)
    before: dict[str, Simulation] = {}
    with options.to.open("a") as file:
        for number, case in enumerate(sorted(wanted, key=_together), 1):
            row = measured(case, before, nic)
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(
                f"{number} of {len(wanted)}: {case.key}: slow {row.get('slow')}, once {row.get('transient_us')} us, "
                f"stops {row['stops']}, {row['wall_s']} s",
                flush=True,
            )


def _by_queue_pairs() -> None:
    """Print how long RoCE's collectives take without a failure, by queue pairs a connection."""
    for name in ("roce", "roce_dual"):
        for which in COLLECTIVES:
            asked = scenario(Case(name, which, "fabric_link", SIZES[0], 1), -1.0, Nic())
            took = []
            for count in (1, 4, 8, 16):
                asked["transport"]["qps"] = count
                took.append(f"{count}: {openmrc.simulate(asked, seed=1).summary['step_us']['mean']:.0f} us")
            print(f"{name}, {which}: {', '.join(took)}", flush=True)


def _compared(nics: dict[str, Nic], networks: tuple[str, ...], only: str) -> None:
    """Print how much longer collectives of 64 NICs take while a failure lasts, a column for each NIC."""
    print(f"| network | failure | {' | '.join(nics)} |\n|---|---{'|---' * len(nics)}|")
    for name, kind in [(name, kind) for name in networks for kind in COMPARED]:
        if f"{name}/{kind}".startswith(only) and (kind != "nic_link" or NETWORKS[name].planes > 1):
            print(f"| {name} | {kind} | {' | '.join(_longer(name, kind, nic) for nic in nics.values())} |", flush=True)


def _longer(name: str, kind: str, nic: Nic) -> str:
    """Return the mean over collectives and seeds, and the fastest and slowest collective, each over its seeds."""
    slow = [
        statistics.fmean(measured(Case(name, each, kind, SIZES[0], seed), {}, nic).get("slow", 1.0) for seed in SEEDS)
        for each in COLLECTIVES
    ]
    low, mean, high = (100 * (value - 1) for value in (min(slow), statistics.fmean(slow), max(slow)))
    return f"{mean:+.1f} % ({low:+.1f} to {high:+.1f})"


def _together(case: Case) -> tuple[Any, ...]:
    """Order cases so that those with the same run without a failure follow each other."""
    return case.seed, case.nics, list(NETWORKS).index(case.network), COLLECTIVES.index(case.collective)


def _assemble(rows: list[dict[str, Any]], commit: str, table: Path, nic: Nic) -> None:
    """Write the table. Networks of which there is no row stay as they are in it, with their commit and date."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    names = {row["network"] for row in rows}
    measured, healthy, points = _kept(table, names)
    measured |= {name: {"commit": commit, "date": today} for name in names}
    made: dict[str, Any] = {
        "command": "python -m bench.jobs.responses",
        "measured": dict(sorted(measured.items())),
        "machine": "2 cores, shared",
        "message_bytes": LARGEST,
        "nic_gbps": nic.gbps,
        "planes": nic.planes,
        "uplinks": {str(nics): uplinks(nics) for nics in SIZES},
        "reroute_us": REROUTE_US,
        "healthy": sorted([*healthy, *_healthy(rows)], key=_of_row),
        "rows": sorted([*points, *_points(rows)], key=_of_row),
    }
    table.write_text(json.dumps(made, indent=1) + "\n")
    print(f"{table}: {len(made['rows'])} rows, {', '.join(sorted(names))} of {len(rows)} runs")
    for line in agreement(made["rows"]):
        print(line)


def _kept(table: Path, names: set[str]) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what a table has of other networks than these: when they were measured, healthy times, rows."""
    if not table.exists():
        return {}, [], []
    old = json.loads(table.read_text())
    measured = {name: each for name, each in old["measured"].items() if name not in names}
    healthy, points = ([each for each in old[what] if each["network"] not in names] for what in ("healthy", "rows"))
    return measured, healthy, points


def _of_row(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["network"], row["collective"], row.get("kind", ""), row["nics"]


def _healthy(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the times of the collectives without a failure, means over seeds."""
    calm: dict[tuple[str, str, int], set[tuple[int, float]]] = {}
    for row in rows:
        calm.setdefault((row["network"], row["collective"], row["nics"]), set()).add((row["seed"], row["healthy_us"]))
    return [
        {"network": network, "collective": name, "nics": nics,
         "took_us": round(statistics.fmean(took for _, took in found), 3)}
        for (network, name, nics), found in calm.items()
    ]  # fmt: skip


def _points(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points that were measured, means over seeds."""
    groups: dict[tuple[str, str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["network"], row["collective"], row["kind"], row["nics"]), []).append(row)
    return [_mean(key, found) for key, found in groups.items()]


def _commit() -> str:
    """Return the last commit that changed the simulator or the engine."""
    words = ["git", "log", "-1", "--format=%h", "--", "openmrc/sim", "openmrc/engine"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _mean(key: tuple[str, str, str, int], rows: list[dict[str, Any]]) -> dict[str, Any]:
    network, name, kind, nics = key
    ended = [row for row in rows if not row["stops"] and "slow" in row]
    return {
        "network": network, "collective": name, "kind": kind, "nics": nics,
        "slow": round(statistics.fmean(row["slow"] for row in ended), 5) if ended else 1.0,
        "once_us": round(statistics.fmean(row["transient_us"] for row in ended), 2) if ended else 0.0,
        "stops": any(row["stops"] for row in rows), "seeds": len(rows),
    }  # fmt: skip


def agreement(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how far the rules by which the table carries are met: sizes, loss, delays."""
    by = {(row["network"], row["kind"], row["nics"], row["collective"]): row for row in rows}

    def mean(network: str, kind: str, nics: int, field: str) -> float:
        found = [by[key][field] for name in COLLECTIVES if (key := (network, kind, nics, name)) in by]
        return statistics.fmean(found) if found else float("nan")

    small, large = SIZES
    for network in NETWORKS:
        for kind in AT_BOTH_SIZES:
            one, two = (mean(network, kind, nics, "slow") - 1 for nics in SIZES)
            once = [mean(network, kind, nics, "once_us") for nics in SIZES]
            yield (
                f"{network}, {kind}: {one:+.1%} with {small} NICs, {two:+.1%} with {large}; "
                f"once {once[0]:.0f} and {once[1]:.0f} us"
            )
        for where in ("nic", "fabric"):
            percent, tenth = (mean(network, f"{where}_grey_{loss}", small, "slow") - 1 for loss in ("1e-2", "1e-3"))
            yield f"{network}, {where}_grey: {percent:+.1%} at 1 % of loss, {tenth:+.1%} at 0.1 %"
        late, soon = (mean(network, kind, small, "once_us") for kind in ("fabric_link_late", "fabric_link"))
        if network.startswith("roce"):
            more = LATE_US - REROUTE_US
            yield f"{network}: rerouted {more:.0f} us later, a lost link costs {late - soon:.0f} us more"


if __name__ == "__main__":
    main()
