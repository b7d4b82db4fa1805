"""Does the month agree with what operators published? Inputs from one half of a source, outputs beside the other.

python -m bench.jobs.published            prints the table of docs/evidence/month.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from openmrc.fabric.model.parts import FailureRate, HostFailures, Parts, load_parts
from openmrc.planner.comparison import JobQuestion, answer, situation_of
from openmrc.planner.policy import Policy
from openmrc.planner.rows import Spent

PARTS = load_parts()
NEVER = FailureRate(mtbf_hours=1e15, mttr_hours=0, source="")
WEEK = 7.0
GPUS_A_NODE = 8
META_FAILURES = 6.5  # of RSC-1, a 1,000 node-days


def main() -> None:
    """Print a row for each figure."""
    for source, given, figure, published, ours in rows():
        print(f"| {source} | {given} | {figure} | {published} | {ours} |")


def rows() -> list[tuple[str, str, str, str, str]]:
    """Return source, inputs, figure, published and simulated value."""
    return [*llama(), *meta(), *bytedance(), *alibaba(), *openai()]


def llama() -> list[tuple[str, str, str, str, str]]:
    """Return interruptions by the network, from the link rates of another operator, and the effective time."""
    found = answer(JobQuestion(gpus=16_384, days=54, jobs=100), "roce", PARTS)
    network = found.stops[:, [kind.where == "network" for kind in found.kinds]].sum(axis=1)
    effective = 1 - found.share(
        Spent.NETWORK_DOWN, Spent.NETWORK_REDONE, Spent.HOST_DOWN, Spent.HOST_REDONE, Spent.CHECKPOINTS
    )
    source = "Llama 3 (arXiv 2407.21783): 16,384 GPUs, 54 days"
    return [
        (source, "its host failures; links and ToRs of HPN", "interruptions by switches and cables", "35",
         f"{network.mean():.0f} ({min(network):.0f} to {max(network):.0f})"),
        (source, "the same, default policy", "effective training time", "above 90 %", f"{effective:.1%}"),
    ]  # fmt: skip


def meta() -> list[tuple[str, str, str, str, str]]:
    """Return the time between failures by the size of a job, from the cluster's rate per node."""
    mtbf = GPUS_A_NODE * 24 * 1000 / META_FAILURES
    host = FailureRate(mtbf_hours=mtbf, mttr_hours=0, source="6.50 failures a 1,000 node-days")
    parts = _hosts_alone(host)
    source = "Meta RSC-1 (arXiv 2410.21680)"
    made = []
    for gpus, published in ((1024, "7.9 h observed"), (16_384, "1.8 h projected"), (131_072, "0.23 h projected")):
        question = JobQuestion(gpus=gpus, days=60 if gpus < 2000 else 10, jobs=40)
        found = answer(question, "mrc", parts)
        hours = question.days * 24 / found.stops.sum(axis=1).mean()
        made.append((source, "6.50 failures per 1,000 node-days", f"time between failures, {gpus:,} GPUs", published,
                     f"{hours:.2g} h"))  # fmt: skip
    return [*made, *_effective(source, parts)]


def _effective(source: str, parts: Parts) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the effective training time beside the paper's first-order estimate: 1 - failures x (restart + half)."""
    policy = Policy(detect_s=0, diagnose_s=0, restart_s=300, checkpoint_s=3600, pause_s=0, lag_s=0, evict=False)
    for gpus in (2_048, 12_288):
        failures = gpus / GPUS_A_NODE * META_FAILURES / 1000  # a day
        estimate = 1 - failures * (policy.restart_s + policy.checkpoint_s / 2) / 86_400
        found = answer(JobQuestion(gpus=gpus, days=30, jobs=40, policy=policy), "mrc", parts)
        yield (source, "the same; hourly checkpoints, 5 min of restart", f"effective training time, {gpus:,} GPUs",
               f"{estimate:.1%} by its first-order estimate", f"{found.goodput.mean():.1%}")  # fmt: skip


def bytedance() -> list[tuple[str, str, str, str, str]]:
    """Return effective time and recoveries with the failure rates of Llama 3."""
    three = answer(JobQuestion(gpus=9_600, days=90, jobs=40), "roce_adaptive", PARTS)
    effective = 1 - three.share(Spent.NETWORK_DOWN, Spent.NETWORK_REDONE, Spent.HOST_DOWN, Spent.HOST_REDONE)
    weeks = answer(JobQuestion(gpus=12_288, days=4 * WEEK, jobs=40), "roce", PARTS)
    return [
        ("ByteRobust (arXiv 2509.16293): 9,600 GPUs, 3 months", "failure rates of Llama 3; the default policy was "
         "chosen by this figure", "effective training time", "97 %", f"{effective:.1%}"),
        ("MegaScale (NSDI 2024): 12,288 GPUs, several weeks", "failure rates of Llama 3, 4 weeks assumed", "recoveries",
         "over 100", f"{weeks.stops.sum(axis=1).mean():.0f}"),
    ]  # fmt: skip


def alibaba() -> list[tuple[str, str, str, str, str]]:
    """Return crashes a month by the network alone, what slow diagnosis costs, and collisions."""
    failures = msgspec.structs.replace(
        PARTS.failures, **{name: NEVER for name in PARTS.failures.__struct_fields__ if name not in ("nic_link", "t0")}
    )
    alone = msgspec.structs.replace(_hosts_alone(NEVER), failures=failures)
    crashes = answer(JobQuestion(gpus=3_000, days=30, jobs=100), "roce", alone).stops.sum(axis=1).mean()
    slow = Policy(diagnose_s=6 * 3600.0, detect_s=1800.0, checkpoint_s=3600.0)
    lost = answer(JobQuestion(gpus=2_400, days=30, jobs=40, policy=slow), "roce", PARTS)
    share = lost.share(Spent.NETWORK_DOWN, Spent.NETWORK_REDONE, Spent.HOST_DOWN, Spent.HOST_REDONE)
    calm = situation_of(JobQuestion(gpus=512), "roce", PARTS)
    slower = calm.table.congestion("roce", "all_reduce") - 1
    return [
        ("HPN (SIGCOMM 2024)", "0.057 % of NIC links and 0.051 % of ToRs a month, single-homed",
         "crashes of a job of 3,000 GPUs a month", "1 to 2", f"{crashes:.1f}"),
        ("C4 (arXiv 2406.04594): 2,400 GPUs", "failure rates of Llama 3; 6 h of diagnosis and hourly checkpoints "
         "assumed for its hours to days", "share of the job's life lost", "above 30 %", f"{share:.0%}"),
        ("C4: 512 GPUs", "ECMP with 16 queue pairs a connection", "collectives slower by collisions",
         "30 % below ideal", f"{slower / (1 + slower):.0%} below the best network measured"),
    ]  # fmt: skip


def openai() -> list[tuple[str, str, str, str, str]]:
    """Return what flaps, a lost NIC link and the reboot of a T1 cost with MRC."""
    question = JobQuestion(gpus=75_000, days=30, jobs=20)
    found = answer(question, "mrc", PARTS)
    costs = {row["cause"]: row for row in found.by_cause()}
    situation = situation_of(replace(question, model="moe"), "mrc", PARTS)
    reboot = situation.slowed("t1", 1 / situation.design.network.spines) / situation.calm_step - 1
    port = situation.slowed("nic_link", least=8 / 7) / situation.calm_step - 1
    once = situation.once("nic_link")
    source = "MRC (arXiv 2605.04333): 75,000 GPUs"
    planes = situation.design.planes
    flaps = costs["fabric_flap"]["count"] / (question.days * 24 * 60) * 4 / planes
    return [
        (source, "links of the plan, MTBF from this figure", "T0-T1 flaps a minute on 4 planes",
         "4.2 (1 to 13), on 75,000 NICs or more", f"{flaps:.1f}"),
        (source, "the same", "goodput lost to these flaps", "no measurable effect",
         f"{costs['fabric_flap']['lost_percent']:.4f} %"),
        (source, "response table, moe", "step during a T1's reboot", "throughput largely unaffected", f"+{reboot:.2%}"),
        (source, "response table, moe", "a lost NIC link", "25 % lower throughput for about a minute (4 links flap)",
         f"+{port:.1%} of a step while it lasts, {1e3 * once:.2g} ms once: **does not agree**, see below"),
    ]  # fmt: skip


def _hosts_alone(host: FailureRate) -> Parts:
    """Return parts of which only hosts fail."""
    hosts = HostFailures(gpu=host, **{name: NEVER for name in HostFailures.__struct_fields__ if name != "gpu"})
    failures = msgspec.structs.replace(PARTS.failures, **dict.fromkeys(PARTS.failures.__struct_fields__, NEVER))
    return msgspec.structs.replace(PARTS, failures=failures, host=hosts)


if __name__ == "__main__":
    main()
