"""`mrc plan job`: what failures cost a whole training job, on MRC and on its rivals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from openmrc.base.amounts import gbps_of
from openmrc.base.terminal import print_table
from openmrc.errors import ConfigError, UsageError
from openmrc.fabric.model.parts import load_parts
from openmrc.planner.month.comparison import JobQuestion
from openmrc.planner.month.outcome import outcome, sentence
from openmrc.planner.month.response_table import FILE
from openmrc.planner.month.structure import Parallelism
from openmrc.planner.month.tasks import RUNNERS
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import check_folder, give
from openmrc.programs.simulation.plan_options import JobCourse, JobNetwork, JobOutput, JobPolicy
from openmrc.report.month import POLICY_HEAD, month_page, policy_rows, share_picture, turning
from openmrc.sim.workloads.exposure import exposures
from openmrc.sim.workloads.families import plan_of
from openmrc.sim.workloads.plan import WorkloadHosts
from openmrc.sim.workloads.trace import Trace

MOST_RANKS = 1 << 17  # NICs that a trace may use


@with_groups
def job(network: JobNetwork, course: JobCourse, policy: JobPolicy, output: JobOutput) -> None:
    """Simulate a training job of many days: what it loses to the network, to hosts and to its own policy."""
    answer(network, course, policy, output)


def answer(network: JobNetwork, course: JobCourse, policy: JobPolicy, output: JobOutput) -> None:
    """Simulate the job on each network; write and print what it loses."""
    question = JobQuestion(
        gpus=network.gpus,
        nic_gbps=gbps_of(network.nic),
        responses=str(network.responses or FILE),
        planes=network.planes,
        switch_tbps=gbps_of(network.switch) / 1000,
        model=course.model if course.trace is None else f"trace {course.trace.name}",
        groups=_groups(course, network.nic),
        days=course.days,
        jobs=course.jobs,
        seed=course.seed,
        threads=course.threads,
        infant=course.infant,
        policy=policy.policy(),
    )
    names = tuple(name.strip() for name in network.networks.split(",") if name.strip())
    check_folder(output.out, "--out")
    if not names:
        raise UsageError(f"--networks: {network.networks!r} names none; expected some of mrc, roce, uet")
    result = outcome(question, names, load_parts(network.parts), deep=output.deep, run=RUNNERS[course.on])
    if output.out is not None:
        result["out"] = str(output.out)
        _write(result, output.out)
    give(result, output.as_json, lambda: _print(result))


def _groups(course: JobCourse, nic: str) -> tuple[Parallelism, ...]:
    """Return what a step of the trace exchanges; (): no trace."""
    if course.trace is None:
        return ()
    if not course.trace.is_file() and not Path(f"{course.trace}.0.et").is_file():
        raise UsageError(f"--trace: {course.trace}: file not found")
    rate = round(gbps_of(nic) * 1e9)
    wanted = Trace(file=str(course.trace), ranks_per_nic=course.ranks_per_nic, layers=course.layers)
    plan = plan_of(WorkloadHosts(MOST_RANKS, rate), wanted, 1)
    try:
        found = exposures(plan, rate)
    except ConfigError as error:
        raise ConfigError(f"{course.trace}: {error}; expected sends or collectives, or use --model") from None
    source = f"{course.trace.name}, timed on an ideal network"
    return tuple(
        Parallelism(each.collective.replace("_", " "), each.collective, each.share, each.exposed, each.slack, source)
        for each in found
    )


def _write(result: dict[str, Any], folder: Path) -> None:
    """Write the page, the numbers, and the picture for slides."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(month_page(result), encoding="utf-8")
    (folder / "network.svg").write_text(share_picture(result), encoding="utf-8")
    (folder / "job.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _print(result: dict[str, Any]) -> None:

    networks = result["networks"]
    asked = result["question"]
    table = Table(title=f"{asked['gpus']:,} GPUs, {asked['days']:g} days, mean of {asked['jobs']} jobs; percent")
    table.add_column("")
    for each in networks:
        table.add_column(f"{each['title']}\n{each['design']}", justify="right")
    rows = [("lost to the network", "network_lost_percent"), ("lost to hosts and software", "host_lost_percent"),
            ("lost to checkpoints", "policy_lost_percent")]  # fmt: skip
    for label, name in rows:
        table.add_row(label, *(f"{each[name]:.2f}" for each in networks))
    table.add_row("goodput", *(f"{each['goodput_percent']['mean']:.2f}" for each in networks))
    table.add_row("5th to 95th percentile", *(
        f"{each['goodput_percent']['p5']:.1f} to {each['goodput_percent']['p95']:.1f}" for each in networks
    ))  # fmt: skip
    for name in networks[0]["lost_percent"]:
        table.add_row(f"  {name}", *(f"{each['lost_percent'][name]:.3f}" for each in networks))
    table.add_row("stops by the network, a job", *(f"{each['network_stops']:,.1f}" for each in networks))
    table.add_row("stops by hosts and software, a job", *(f"{each['host_stops']:,.1f}" for each in networks))
    table.add_row("GPU-hours lost to the network", *(f"{each['network_gpu_hours']:,.0f}" for each in networks))
    print_table(table)
    typer.echo(sentence(result))
    if "break_even" in result:
        _print_turns(result)
    if "out" in result:
        typer.echo(f"written to {result['out']}")


def _print_turns(result: dict[str, Any]) -> None:
    """Print what `--deep` found: where the answer turns, and the best policy for each network."""
    for text in turning(result):
        typer.echo(text)
    table = Table(title="Best policy for each network")
    for at, name in enumerate(POLICY_HEAD):
        table.add_column(name, justify="right" if at else "left")
    for row in policy_rows(result["best_policies"]):
        table.add_row(*row)
    print_table(table)
