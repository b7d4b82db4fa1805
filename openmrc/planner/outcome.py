"""The answer of `mrc plan job` in numbers: the network's share first."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import Parts
from openmrc.planner.comparison import TITLES, JobQuestion, answer, best_policy, gpu_hours
from openmrc.planner.forecast import HOST, Forecast
from openmrc.planner.response_table import responses
from openmrc.planner.rows import Spent
from openmrc.planner.sensitivity import break_even, inputs, sensitivity
from openmrc.planner.tasks import RunTasks, one_by_one

WORDS = {
    Spent.USEFUL: "useful",
    Spent.CONGESTION: "congestion without failures",
    Spent.SLOWER: "slower during failures",
    Spent.STALLED: "waiting for the network",
    Spent.NETWORK_DOWN: "stopped by the network",
    Spent.NETWORK_REDONE: "work redone after that",
    Spent.HOST_DOWN: "stopped by hosts and software",
    Spent.HOST_REDONE: "work redone after those",
    Spent.CHECKPOINTS: "waiting for checkpoints",
    Spent.PLANNED_DOWN: "evictions",
}
RICH_GPUS = 2_000_000  # of all jobs with a spare for every host, beside the same jobs without; at least FEW_JOBS
FEW_JOBS = 20


def one(found: Forecast) -> dict[str, Any]:
    """Return the forecast of one network; shares are percent of the wall clock."""
    good = 100 * found.goodput
    design = found.situation.design
    lost = {WORDS[bucket]: 100 * found.share(bucket) for bucket in Spent if bucket != Spent.USEFUL}
    by_network = np.array([kind.where == "network" for kind in found.kinds])
    return {
        "network": found.situation.network,
        "title": TITLES[found.situation.network],
        "design": design.name,
        "network_lost_percent": 100 * found.network_loss,
        "host_lost_percent": 100 * found.share(*HOST),
        "policy_lost_percent": 100 * found.share(Spent.CHECKPOINTS),
        "goodput_percent": {
            "mean": float(good.mean()),
            "p5": float(np.percentile(good, 5)),
            "p95": float(np.percentile(good, 95)),
            "each": good.round(4).tolist(),
        },
        "lost_percent": lost,
        "network_gpu_hours": gpu_hours(found),
        "network_stops": float(found.stops[:, by_network].sum(axis=1).mean()),
        "host_stops": float(found.stops[:, ~by_network].sum(axis=1).mean()),
        "calm_step": found.situation.calm_step,
        "cost": design.cost,
        "watts": design.watts,
        "causes": found.by_cause(),
    }


def outcome(
    question: JobQuestion,
    networks: tuple[str, ...],
    parts: Parts,
    *,
    deep: bool = False,
    run: RunTasks = one_by_one,
) -> dict[str, Any]:
    """Simulate the job on every network; `deep` adds break-even values, sensitivity and the search over the policy."""
    if not networks or len(set(networks)) < len(networks):
        raise ConfigError(f"networks = {', '.join(networks)}; expected one or more, each once")
    found = run([partial(_answered, question, network, parts) for network in networks])
    known = responses(Path(question.responses))
    result: dict[str, Any] = {
        "question": asdict(question) | {"responses": Path(question.responses).name},
        "responses": {
            "command": known.command,
            "machine": known.machine,
            "measured": {
                name: msgspec.to_builtins(known.measured[name]) for name in networks if name in known.measured
            },
        },
        "inputs": [asdict(each) for each in inputs(question, parts)],
        "networks": found,
    }
    rivals = [each for each in found if each["network"].startswith("roce")]
    if deep and networks[0] == "mrc" and rivals:
        rival = max(rivals, key=lambda each: each["goodput_percent"]["mean"])["network"]
        pair = (networks[0], rival)
        result["sensitivity"] = {"between": list(pair), **sensitivity(question, networks, parts, known, run)}
        searches = [partial(best_policy, question, network, parts) for network in networks]
        tasks = [partial(break_even, question, pair, parts, known), *searches]
        result["break_even"], *result["best_policies"] = run(tasks)
    return result


def _answered(question: JobQuestion, network: str, parts: Parts) -> dict[str, Any]:
    found = answer(question, network, parts)
    jobs = min(question.jobs, max(FEW_JOBS, RICH_GPUS // question.gpus))
    rich = replace(question, policy=replace(question.policy, spares=1.0), jobs=jobs)
    won = answer(rich, network, parts).goodput - found.goodput[:jobs]
    return one(found) | {"won_by_spares_percent": 100 * float(won.mean())}


def phrase(network: str) -> str:
    """Return a network's title as a part of a sentence, such as RoCE with two ToRs."""
    return TITLES[network].replace(", ", " with ")


def sentence(result: Mapping[str, Any]) -> str:
    first, *others = result["networks"]
    asked = result["question"]
    text = (
        f"{phrase(first['network'])} loses {first['network_lost_percent']:.2f} % of {asked['days']:g} days of "
        f"{asked['gpus']:,} GPUs to the network and {first['host_lost_percent']:.1f} % to hosts and software"
    )
    for other in others:
        text += f"; {phrase(other['network'])} loses {other['network_lost_percent']:.2f} % to the network"
    return text + "."
