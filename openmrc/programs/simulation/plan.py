"""`mrc plan`: parts, cost and failure impact of a fabric of a given size."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from openmrc.base.amounts import gbps_of
from openmrc.base.terminal import print_rows, print_table
from openmrc.errors import ConfigError, UsageError
from openmrc.fabric.model.build import save
from openmrc.fabric.model.parts import Parts, load_parts
from openmrc.planner.compare import cheapest, compared, rails_of, ratios
from openmrc.planner.comparison import JobQuestion
from openmrc.planner.design import Design
from openmrc.planner.outcome import outcome, sentence
from openmrc.planner.response_table import FILE
from openmrc.planner.structure import Parallelism
from openmrc.planner.tasks import RUNNERS
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import check_folder, give
from openmrc.programs.simulation.plan_options import (
    JobCourse,
    JobNetwork,
    JobOutput,
    JobPolicy,
    PlanLimits,
    PlannedDesign,
    PlanOutput,
)
from openmrc.report.month import (
    MOST_INPUTS,
    POLICY_HEAD,
    bases,
    figure_rows,
    input_head,
    input_rows,
    month_page,
    order,
    policy_rows,
    sensitivity_picture,
    share_picture,
    turning,
)
from openmrc.report.svg import bars, stacked, standalone
from openmrc.sim.workloads.exposure import exposures
from openmrc.sim.workloads.plan import WorkloadHosts
from openmrc.sim.workloads.shares import plan_of
from openmrc.sim.workloads.trace import Trace

MOST_RANKS = 1 << 17  # NICs that a trace may use


@with_groups
def job(network: JobNetwork, course: JobCourse, policy: JobPolicy, output: JobOutput) -> None:
    """Simulate a training job of many days: what it loses to the network, to hosts and to its own policy."""
    question = JobQuestion(
        **{name: getattr(network, name) for name in ("gpus", "planes")},
        **{name: getattr(course, name) for name in ("days", "jobs", "seed", "threads", "infant")},
        nic_gbps=gbps_of(network.nic),
        responses=str(network.responses or FILE),
        switch_tbps=gbps_of(network.switch) / 1000,
        model=course.model if course.trace is None else f"trace {course.trace.name}",
        groups=_groups(course, network.nic),
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
    """Write the page, the numbers, and the pictures for slides."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(month_page(result), encoding="utf-8")
    (folder / "network.svg").write_text(share_picture(result), encoding="utf-8")
    if "sensitivity" in result:
        (folder / "sensitivity.svg").write_text(sensitivity_picture(result), encoding="utf-8")
    (folder / "job.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _print(result: dict[str, Any]) -> None:
    networks = result["networks"]
    asked = result["question"]
    table = Table(title=f"{asked['gpus']:,} GPUs, {asked['days']:g} days, mean of {asked['jobs']} jobs; percent")
    table.add_column("")
    for each in networks:
        table.add_column(f"{each['title']}\n{each['design']}", justify="right")
    for row in figure_rows(networks):
        table.add_row(*row)
    print_table(table)
    typer.echo(bases(result["inputs"]))
    typer.echo(sentence(result))
    if "break_even" in result:
        _print_turns(result)
    if "out" in result:
        typer.echo(f"written to {result['out']}")


def _print_turns(result: dict[str, Any]) -> None:
    """Print what `--deep` found: where the answer turns, and the best policy for each network."""
    found = result["sensitivity"]
    rows = input_rows(found["inputs"][:MOST_INPUTS], found["between"])
    print_rows(input_head(found["between"]), rows, title="What moves the answer most, at both ends of its range")
    for text in (*turning(result), *order(found)):
        typer.echo(text)
    columns = range(1, len(POLICY_HEAD))
    print_rows(POLICY_HEAD, policy_rows(result["best_policies"]), columns, "Best policy for each network")


app = typer.Typer(help="Size a fabric: switches, optics, power, cost, blast radius; a job's month.")

app.command("job")(job)

_PARTS = {
    "nic_link": "a NIC-T0 link",
    "nic_port": "a NIC's port",
    "nic_optic": "a NIC's optic",
    "t0_optic": "a T0's optic",
    "t0_t1_link": "a T0-T1 link",
    "t0": "a T0",
    "t1": "a T1",
    "plane": "a plane",
}


@app.callback(invoke_without_command=True)
@with_groups
def plan(context: typer.Context, design: PlannedDesign, limits: PlanLimits, output: PlanOutput) -> None:
    """Compare the multi-plane design with single-plane ones, or search for the cheapest."""
    if context.invoked_subcommand:
        return

    known, wish = load_parts(design.parts), limits.wish(design)
    if limits.cheapest:
        designs = cheapest(wish, known)
        result: dict[str, Any] = {"cheapest": designs[0].name}
    else:
        switch, rails = known.switch(gbps_of(design.switch) / 1000), rails_of(design.gpus, design.rails)
        designs = compared(wish, design.planes, switch, known, rails, design.oversubscription)
        result = {"ratios": ratios(designs)}
    if output.plot:
        plot_designs(designs, known, output.plot)
    if output.out:
        one = _design_named(designs, output.chosen)
        about = f"{one.name}: {one.total_switches} switches of {one.switch.name}, from mrc plan"
        save(one.fabric(f"gpus-{one.nics}", output.nics_per_host), output.out, about)
        result["out"] = str(output.out)
    give(
        {"gpus": design.gpus, **result, "designs": [each.as_dict(known) for each in designs]},
        output.as_json,
        lambda: _print_table(designs, known),
    )


def _design_named(designs: list[Design], name: str | None) -> Design:
    found = next((each for each in designs if name in (None, each.name)), None)
    if found is None:
        raise UsageError(f"--design: {name!r} is not among {', '.join(each.name for each in designs)}")
    return found


def _print_table(designs: list[Design], parts: Parts) -> None:
    table = Table(title=f"{designs[0].nics:,} NICs of {designs[0].nic_gbps:g}G", caption=_caption(designs, parts))
    table.add_column("")
    for each in designs[:6]:
        table.add_column(each.name, justify="right", overflow="fold")
    for cells in zip(*(_column(each, parts) for each in designs[:6]), strict=True):
        table.add_row(cells[0][0], *(value for _, value in cells))
    print_table(table)


def _column(each: Design, parts: Parts) -> list[tuple[str, str]]:
    """Return one design's cells, each with its row's name."""
    tiers = [each.networks * count for count in each.network.switches] + [0] * 4
    loss = each.loss_percent()
    rows = [
        ("separate networks", str(each.islands)),
        ("switch", f"{each.switch.name}, {each.network.radix} ports"),
        ("tiers", str(each.tiers)),
        ("switches on the longest path", str(each.max_hops)),
        *((f"T{tier} switches", f"{tiers[tier]:,}") for tier in range(4)),
        ("switches", f"{each.total_switches:,}"),
        ("links", f"{each.links:,}"),
        ("down : up at T0", _ratio(each)),
        ("optics", f"{each.optics:,}"),
        ("paths", f"{each.planes * each.network.paths:,}"),
        ("bisection, Tb/s", f"{each.bisection_tbps:,.0f}"),
        ("power, MW", f"{each.watts / 1e6:.2f}"),
        ("cost, M", f"{each.cost / 1e6:,.1f}"),
    ]
    rows += [(f"NIC loss by {_PARTS[part]}", f"{share:.3g} %") for part, share in loss.items()]
    of_fabric = each.fabric_loss_percent(parts.optic.gbps)
    return rows + [(f"fabric loss by {_PARTS[part]}", f"{share:.3g} %") for part, share in of_fabric.items()]


def _ratio(each: Design) -> str:
    """Format a T0's ports down and up, and their ratio."""
    one = each.network
    return f"{one.down}:{one.up} = {one.oversubscription:.3g}" if one.up else "no uplinks"


def _caption(designs: list[Design], parts: Parts) -> str:
    used = {each.switch.name: each.switch for each in designs}.values()
    assumed = [switch.name for switch in used if switch.assumption]
    if parts.optic.assumption:
        assumed.append("optic")
    note = f"Assumed watts or prices: {', '.join(assumed)}; see --parts. " if assumed else ""
    return note + "NIC losses between switches are shares of its capacity in the plane, others of its whole capacity."


_PANELS: tuple[tuple[str, str, Callable[[Design], float]], ...] = (
    ("switches", "", lambda each: each.total_switches),
    ("optics", "", lambda each: each.optics),
    ("power", "MW", lambda each: each.watts / 1e6),
    ("cost", "millions", lambda each: each.cost / 1e6),
    ("switches on the longest path", "", lambda each: each.max_hops),
    ("lost by a NIC-T0 link", "%", lambda each: each.loss_percent()["nic_link"]),
    ("lost by a T0-T1 link", "% of a plane", lambda each: each.loss_percent()["t0_t1_link"]),
)


def plot_designs(designs: Sequence[Design], parts: Parts, path: Path) -> None:
    """Write an SVG with a panel for each figure and in it a bar for each design."""
    if path.suffix != ".svg":
        raise UsageError(f"--plot: {path}: pictures are SVG; name the file {path.with_suffix('.svg').name}")
    names = [each.name + (f" ({each.islands} islands)" if each.islands > 1 else "") for each in designs]
    drawn = [
        bars(what, what, [(name, value(each)) for name, each in zip(names, designs, strict=True)], unit)
        for what, unit, value in _PANELS
    ]
    title = f"{designs[0].nics:,} NICs of {designs[0].nic_gbps:g}G; optic {parts.optic.gbps:g}G"
    path.write_text(standalone(stacked(title, drawn), title), encoding="utf-8")
