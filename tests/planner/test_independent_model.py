"""The month beside a second model of it: renewal theory in closed form, written from docs/month.md.

A stop comes at rate L, whatever the job does. Between two stops lie the time until the job runs again and a run of
exponential length, of which the checkpoints that can be restored count. The pace is the mean over all failures that may
be present, each on its own; a swap or an eviction ends a failure before its repair.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import exp, sqrt
from typing import Any

import pytest
import yaml

from openmrc.fabric.model.parts import PARTS_FILE, load_parts
from openmrc.planner.comparison import JobQuestion, answer
from openmrc.planner.policy import Policy
from openmrc.planner.response_table import FILE

NICS, HOST_NICS, T0_LINKS = 16_384, 8, {"mrc": 256, "roce": 32}
STEP = (("all_reduce", 0.12, 0.25, 0.5), ("point_to_point", 0.04, 0.5, 0.5))  # share, exposed part, slack: `dense`
TABLE = json.loads(FILE.read_text())
PARTS = yaml.safe_load(PARTS_FILE.read_text())
POLICIES: dict[str, dict[str, Any]] = {
    "default": {},
    "fast": {"checkpoint_s": 120.0, "restart_s": 60.0, "diagnose_s": 60.0},
    "slow": {"checkpoint_s": 1800.0, "restart_s": 900.0},
    "nothing is replaced": {"swap": False, "evict": False},
    "bad links stay": {"isolate_s": 36_000.0, "pause_s": 10.0, "lag_s": 300.0},
    "nothing is drained": {"drain": False, "patience_s": 10.0, "reroute_s": 1.0},
}


class Model:
    """The goodput of one network under one policy; times in s, rates a second."""

    def __init__(self, network: str, policy: dict[str, Any]) -> None:
        self.network, self.planes = network, 8 if network == "mrc" else 1
        self.p = asdict(Policy()) | policy
        self.slow: list[tuple[float, float, float, bool]] = []  # rate, mean time, step, whether a swap ends it
        self.stops: list[tuple[float, float]] = []  # rate, time until the job runs again
        self.waits = 0.0  # share of the running time for which the job stands
        self.calm = self.step({})

    def row(self, kind: str, collective: str) -> Any:
        same = [row for row in TABLE["rows"] if (row["network"], row["kind"]) == (self.network, kind)]
        return max((row for row in same if row["collective"] == collective), key=lambda row: row["nics"])

    def step(self, slow: dict[str, float]) -> float:
        length = 1.0
        for name, share, exposed, slack in STEP:
            took = {
                each["network"]: each["took_us"]
                for each in TABLE["healthy"]
                if (each["collective"], each["nics"]) == (name, 256)
            }
            more = took[self.network] / min(took.values()) * slow.get(name, 1.0) - 1
            length += share * (exposed * more + (1 - exposed) * max(0.0, more - slack))
        return length

    def during(self, kind: str, share: float = 1 / 16, part: float = 1.0, least: float = 1.0) -> float:
        """Return a step's length; `share`: of a T0's paths, of which the measured failure took a sixteenth."""
        share = min(1.0, 16 * share) if self.network == "mrc" else 1.0
        return self.step(
            {name: max(least, 1 + part * share * (max(1.0, self.row(kind, name)["slow"]) - 1)) for name, *_ in STEP}
        )

    def once(self, kind: str) -> float:
        return max(0.0, *(self.row(kind, name)["once_us"] / 1e6 for name, *_ in STEP))

    def failures(self) -> None:
        """Collect what stops the job, slows it and lets it wait."""
        rates, restart = PARTS["failures"], self.p["diagnose_s"] + self.p["restart_s"]
        for each in (*PARTS["host"].values(), rates["feed"]):
            self.stops.append((NICS / each["mtbf_hours"] / 3600, self.p["detect_s"] + restart))
        self.stops.append((NICS / rates["nic_optic"]["mtbf_hours"] / 3600, self.p["patience_s"] + restart))
        links, t0s = NICS * self.planes, NICS * self.planes / T0_LINKS[self.network]
        ports = {"nic_link": links, "nic_flap": links, "t0": t0s, "t0_reboot": t0s, "tray": NICS}
        for name, count in (ports | ({} if self.p["drain"] else {"t0_maintenance": t0s})).items():
            rate, mean = count / rates[name]["mtbf_hours"] / 3600, 3600 * rates[name]["mttr_hours"]
            if self.planes > 1:
                self.slow.append((rate, mean, self.during("nic_link", least=8 / 7), name in ("nic_link", "nic_flap")))
                continue
            stops = exp(-self.p["patience_s"] / mean)
            self.stops.append((rate * stops, self.p["patience_s"] + restart))
            self.waits += rate * (mean * (1 - stops) - self.p["patience_s"] * stops + self.once("nic_flap"))
        self.above(rates)

    def above(self, rates: dict[str, Any]) -> None:
        """Collect links and switches above T0, and links that lose packets or are slow."""
        up, tiers = T0_LINKS[self.network], 1 if self.planes > 1 else 2
        links, switches = NICS * self.planes * tiers, 8 * 32 if self.planes > 1 else NICS / 32 + NICS / 64
        wait, spine = 0.0 if self.planes > 1 else self.p["reroute_s"] - 200e-6, 1 / 32
        for name, kind, count, share in (
            ("fabric_link", "fabric_link", links, 1 / up),
            ("fabric_flap", "fabric_link", links, 1 / up),
            *((name, "t1", switches, spine) for name in ("t1", "t1_reboot", "t1_maintenance")),
        ):
            rate = count / rates[name]["mtbf_hours"] / 3600
            self.slow.append((rate, 3600 * rates[name]["mttr_hours"], self.during(kind, share), False))
            self.waits += 0.0 if "maint" in name and self.p["drain"] else rate * (self.once(kind) + wait)
        grey = [
            (f"{at}_grey", n, f"{at}_grey_1e-2", 10.0**d * sqrt(10) * 100, 1 / up, 4)
            for d in (-6, -5, -4, -3)
            for at, n in (("nic", NICS * self.planes), ("fabric", links))
        ]
        for name, count, kind, part, share, decades in (
            *grey,
            ("nic_slow", NICS * self.planes, "nic_slow", 1.0, 1 / 16, 1),
            ("fabric_slow", links, "fabric_slow", 1.0, 1 / up, 1),
            ("batch", links, "fabric_grey_1e-2", 0.1, min(1.0, 64 / up), 1),
        ):
            at_nic, mean = name.startswith("nic"), 3600 * rates[name]["mttr_hours"]
            length = self.during(kind, 1 / 16 if at_nic else share, part)
            if not at_nic and length > self.during("fabric_link", 1 / up):
                mean = min(mean, self.p["isolate_s"])
            self.slow.append((count / decades / rates[name]["mtbf_hours"] / 3600, mean, length, at_nic))

    def goodput(self) -> float:
        """Return the useful share of the time."""
        self.failures()
        p, often = self.p, sum(rate for rate, _ in self.stops)
        period, pace, present, evictions = max(p["checkpoint_s"], p["lag_s"]) + p["pause_s"], 0.0, 1.0, 0.0
        for rate, mean, length, is_swapped in sorted(self.slow, key=lambda each: -each[2]):
            lasts = 1 / (1 / mean + often) if is_swapped and p["swap"] else mean
            worth = min(mean, 1 / often) * (1 - self.calm / length)
            if (
                is_swapped and p["evict"] and worth > p["restart_s"]
            ):  # until the next checkpoint, on average half a period
                met = (1 - exp(-period / lasts)) / (period / lasts)
                lasts, evictions = lasts * (1 - met), evictions + rate * met
            absent = exp(-rate * lasts)
            pace, present = pace + present * (1 - absent) / length, present * absent
        pace += present / self.calm
        pace *= 1 - self.waits - evictions * p["restart_s"]
        down = sum(rate * exp(-often * time) for rate, time in self.stops) / often
        kept = (period - p["pause_s"]) * exp(-often * p["lag_s"]) / (exp(often * period) - 1)
        return pace * kept / ((1 - down) / (often * down) + 1 / often)


@pytest.mark.parametrize("network", ["mrc", "roce"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_mean_of_the_jobs_is_within_half_a_point_of_renewal_theory(name: str, network: str) -> None:
    question = JobQuestion(gpus=NICS, jobs=40, policy=replace(Policy(), **POLICIES[name]))
    found = 100 * answer(question, network, load_parts()).goodput.mean()
    assert 100 * Model(network, POLICIES[name]).goodput() == pytest.approx(found, abs=0.5)
