"""Inject faults of every kind into the model of `harness.probe_model` and count what is named rightly.

    python -m bench.probing.localisation --fabric gpus-1024 --trials 540
    python -m bench.probing.localisation --nics 8192 --trials 504 --records FILE   # again and again until all are run
    python -m bench.probing.localisation --hour

One plane of the fabric, as planes share nothing but NICs. Each trial draws a kind of fault and its place; ours stops
when it has named as many parts as were broken, or at the kind's limit; the baselines see all counts up to the limit.

precision: named parts that share a direction with the truth; recall: broken parts that share one with what is named;
located: broken parts that are named exactly (a cable also by either of its ports, which is the same name here; for 007
and Flock, who know links only, by one of its directions). Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from bench.probing.baselines import BASELINES
from bench.probing.records import trials
from harness.probe_model import PROBE_CHANCE, ModelTrial, PartFault, TrialPaths, localisers, trial_paths
from openmrc.base.shipped import find
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.denial import DenialController, DenialLimits
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.localise import Localiser
from openmrc.operations.diagnosis.probe_plan import plan_plane

Localisers = tuple[Localiser, Localiser]  # by losses, by delays
NONE = "none"  # where there is no figure
WHOLE: dict[str, Any] = {"loss": 1.0, "large_loss": 1.0}
KINDS: dict[str, tuple[str, dict[str, Any], float]] = {  # which parts, what is wrong with them, limit in ms
    "silent cable": ("cable", WHOLE, 50),
    "silent direction": ("link", WHOLE, 50),
    "silent T0": ("t0", WHOLE, 50),
    "silent T1": ("t1", WHOLE, 50),
    "flapping cable": ("cable", {**WHOLE, "on_ms": 20, "every_ms": 500}, 2000),
    "1 % direction": ("link", {"loss": 0.01}, 4000),
    "1 % cable": ("cable", {"loss": 0.01}, 4000),
    "1 % T1": ("t1", {"loss": 0.01}, 4000),
    "0.1 % direction": ("link", {"loss": 0.001}, 16000),
    "0.1 % cable": ("cable", {"loss": 0.001}, 16000),
    "0.01 % direction": ("link", {"loss": 0.0001}, 65000),
    "bit errors 1e-7": ("link", {"loss": 9.4e-5, "large_loss": 3.4e-3}, 65000),
    "one size": ("link", {"large_loss": 1.0}, 1000),
    "one size, 1 %": ("link", {"large_loss": 0.01}, 65000),
    "slow port": ("link", {"late": 0.5}, 1000),
    "late host": ("host", {}, 1000),
    "two silent cables": ("cable+cable", WHOLE, 50),
    "silent and 1 %": ("cable+link", {}, 4000),
}


def square(nics: int) -> Topology:
    plane = Plane(count=1, host_gbps=100, t0=Tier(down=64, up=64), t1=Tier())
    return build(Fabric(name=f"nics-{nics}", hosts=Hosts(count=nics), planes=(plane,)))


def injected(parts: PlaneParts, kind: str, draw: np.random.Generator) -> list[PartFault]:
    where, what, _ = KINDS[kind]
    if where == "host":
        return [PartFault(nic=int(draw.integers(parts.shape.nics)), on_ms=400)]
    places = where.split("+")
    effects: list[dict[str, Any]] = [dict(WHOLE), {"loss": 0.01}] if kind == "silent and 1 %" else [what] * len(places)
    return [PartFault(part=_place(parts, place, draw), **effect) for place, effect in zip(places, effects, strict=True)]


def _place(parts: PlaneParts, where: str, draw: np.random.Generator) -> int:
    shape, switches = parts.shape, parts.links + parts.cables
    if where == "t0":
        return switches + int(draw.integers(shape.t0_count))
    if where == "t1":
        return switches + shape.t0_count + int(draw.integers(shape.t1_count))
    link = int(draw.integers(parts.links))
    return link if where == "link" else parts.links + int(parts.cable_of[link])


class Tally:
    """Right and wrong of one method."""

    def __init__(self) -> None:
        self.named = self.right = self.broken = self.found = self.exact = 0
        self.confused: Counter[tuple[str, str]] = Counter()

    def add(self, parts: PlaneParts, kind: str, truth: list[int], named: list[int], links_only: bool) -> None:
        links = {part: set(parts.links_of(part).tolist()) for part in {*truth, *named}}
        self.named += len(named)
        self.right += sum(any(links[each] & links[part] for part in truth) for each in named)
        self.broken += len(truth)
        for part in truth:
            near = [each for each in named if links[each] & links[part]]
            self.found += bool(near)
            exact = part in near or (links_only and parts.links <= part < parts.links + parts.cables and bool(near))
            self.exact += exact
            said = "itself" if exact else parts.kind(near[0]).name.lower() if near else "nothing"
            self.confused[kind, said] += 1

    def row(self) -> dict[str, Any]:
        return {
            "precision": interval(self.right, self.named),
            "recall": interval(self.found, self.broken),
            "located": interval(self.exact, self.broken),
        }


def interval(hits: int, of: int, z: float = 1.96) -> dict[str, float | str]:
    if not of:
        return {"percent": NONE, "low": NONE, "high": NONE, "of": 0}
    share = hits / of
    middle, spread = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * spread) / (1 + z * z / of) for sign in (-1, 1))
    return {"percent": round(100 * share, 2), "low": round(100 * low, 2), "high": round(100 * high, 2), "of": of}


def bound_ms(kind: str, threshold: float) -> float | None:
    """Return Wald's bound: packets until the mean ratio is at the threshold, over the three a ms that cross a cable."""
    where, what, _ = KINDS[kind]
    loss = what.get("loss", 0.0) * 7 / 8 + max(what.get("loss", 0.0), what.get("large_loss", 0.0)) / 8
    if not loss or where not in ("link", "cable"):
        return None
    p = min(loss, 1 - 1e-9)
    divergence = p * math.log(p / PROBE_CHANCE) + (1 - p) * math.log((1 - p) / (1 - PROBE_CHANCE))
    return threshold / divergence / (2 if where == "link" else 3)


def one_trial(paths: TrialPaths, both: Localisers, kind: str, seed: int, index: int) -> dict[str, Any]:
    """Run one trial; return what was broken, what was named when, and what the baselines name."""
    draw = np.random.default_rng([seed, index])
    limit, faults = KINDS[kind][2], injected(paths.parts, kind, draw)
    trial = ModelTrial(paths, faults, seed * 100_000 + index, both)
    verdicts = trial.run(limit, wanted=len(faults))
    return {
        "kind": kind,
        "broken": [fault.part for fault in faults if fault.part >= 0],
        "named": [int(part) for part, _ in verdicts if part >= 0],
        "hosts": sum(verdict.kind == "host" for _, verdict in verdicts),
        "ms": verdicts[-1][1].at_ps / 1e9 if len(verdicts) >= len(faults) else None,
        # baselines see losses only
        "baselines": {} if kind == "slow port" else _baselines(trial, limit),
    }


def _baselines(trial: ModelTrial, limit: float) -> dict[str, list[int]]:
    again = ModelTrial(trial.paths, trial.faults, 1 + int(limit), (trial.by_loss, trial.by_delay))
    sent, lost = again.counts(limit)
    return {
        name: [int(part) for part in method(trial.paths.parts, trial.by_loss, trial.paths.links, sent, lost)]
        for name, method in BASELINES.items()
    }


def summary(parts: PlaneParts, found: list[dict[str, Any]], kinds: list[str], threshold: float) -> dict[str, Any]:
    """Return the figures of all trials."""
    ours, others = Tally(), {name: Tally() for name in BASELINES}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for each in found:
        ours.add(parts, each["kind"], each["broken"], each["named"], links_only=False)
        for name, named in each["baselines"].items():
            others[name].add(parts, each["kind"], each["broken"], named, links_only=name != "Pingmesh-style")
        times[each["kind"]].append(math.inf if each["ms"] is None else each["ms"])
    late = [each["hosts"] for each in found if each["kind"] == "late host"]
    return {
        "trials": len(found),
        "threshold_nats": round(threshold, 1),
        "methods": {"openmrc": ours.row(), **{name: tally.row() for name, tally in others.items()}},
        "late_hosts": {"named": sum(late), "trials": len(late)},
        "ms_to_name": {kind: _times(kind, ms, threshold) for kind, ms in times.items() if ms},
        "confusion": [[*key, count] for key, count in sorted(ours.confused.items())],
    }


def hour_of_flaps(paths: TrialPaths, seed: int) -> dict[str, Any]:
    """Let a T0-T1 cable go down for a second every two minutes of an hour; deny what is named, count who was healthy.

    Each two minutes are a trial of their own, as the cable is repaired and its windows have passed.
    """
    parts, both = paths.parts, localisers(paths)
    limits = DenialLimits(dry_run=False)
    controller: DenialController[int] = DenialController(
        1, {parts.shape.plane: parts.links}, lambda links: True, limits
    )
    outcomes: Counter[str] = Counter()
    healthy, unnamed = 0, 0
    for turn in range(30):
        draw = np.random.default_rng([seed, turn])
        link = int(draw.integers(parts.shape.fabric_up, parts.shape.fabric_down)) - parts.shape.host_up
        cable = parts.links + int(parts.cable_of[link])
        fault = PartFault(part=cable, loss=1.0, large_loss=1.0, on_ms=1000, every_ms=200_000)
        verdicts = ModelTrial(paths, [fault], seed * 1000 + turn, both).run(120_000, wanted=99)
        unnamed += cable not in [part for part, _ in verdicts]
        for part, verdict in verdicts:
            links = parts.links_of(part).tolist()
            now = turn * 120 + verdict.at_ps / 1e12
            outcome = controller.fault(part, links, parts.shape.plane, now)
            outcomes[outcome] += 1
            healthy += outcome == "denied" and not set(links) <= set(parts.links_of(cable).tolist())
            controller.repaired(part)
        controller.lift(turn * 120 + 119)
    return {"minutes": 60, "flaps": 30, "not_named": unnamed, "outcomes": dict(outcomes),
            "healthy_links_denied": healthy, "denied_at_the_end": len(controller.held)}  # fmt: skip


def _times(kind: str, found: list[float], threshold: float) -> dict[str, Any]:
    ordered = sorted(found)
    bound = bound_ms(kind, threshold)
    at = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.9)]
    named = sum(math.isfinite(each) for each in found)
    return {
        "trials": len(found),
        "named": named,
        "limit": KINDS[kind][2],
        "median": round(at[0], 1) if math.isfinite(at[0]) else NONE,
        "p90": round(at[1], 1) if math.isfinite(at[1]) else NONE,
        "bound": round(bound, 2) if bound else NONE,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--fabric", default="gpus-1024")
    asked.add_argument("--nics", type=int, default=0, help="instead: a plane of this many NICs, T0s of 64")
    asked.add_argument("--trials", type=int, default=540)
    asked.add_argument("--load", type=float, default=0.0, help="share of the ports' rate in traffic that votes")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--hour", action="store_true", help="instead: an hour of flaps")
    asked.add_argument("--kinds", default="", help="only those with this in their name")
    asked.add_argument("--limit", type=float, default=math.inf, help="s; no trial begins later")
    asked.add_argument("--records", type=Path, help="keeps the trials, so that a later run goes on with the next one")
    given = asked.parse_args()
    topology = square(given.nics) if given.nics else build(load(find(given.fabric)))
    paths = trial_paths(topology, plan_plane(topology, 0), given.load, given.seed)
    if given.hour:
        print(json.dumps({"nics": topology.nics, **hour_of_flaps(paths, given.seed)}, indent=1))
        return
    kinds, both = [kind for kind in KINDS if given.kinds in kind], localisers(paths)
    options = {"nics": topology.nics, "load": given.load, "seed": given.seed, "chosen": given.kinds}
    found = trials(given.records, options, given.trials, given.limit,
                   lambda index: one_trial(paths, both, kinds[index % len(kinds)], given.seed, index))  # fmt: skip
    told = summary(paths.parts, found, kinds, both[0].threshold)
    wall = round(sum(each["wall_s"] for each in found), 1)
    print(json.dumps({"nics": topology.nics, "load": given.load, **told, "wall_s": wall}, indent=1))


if __name__ == "__main__":
    main()
