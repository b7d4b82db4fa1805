"""`mrc plan`: parts, cost and failure impact of a fabric of a given size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from openmrc.base.amounts import gbps_of
from openmrc.base.terminal import print_table
from openmrc.errors import UsageError
from openmrc.fabric.model.fabric_file import save
from openmrc.fabric.model.parts import Parts, load_parts
from openmrc.planner.compare import cheapest, compared, rails_of, ratios
from openmrc.planner.design import Design
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import give
from openmrc.programs.simulation.plan_job import job
from openmrc.programs.simulation.plan_options import PlanLimits, PlannedDesign, PlanOutput
from openmrc.report.designs import plot_designs

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

    known = load_parts(design.parts)
    if limits.cheapest:
        designs = cheapest(limits.wish(design), known)
        result: dict[str, Any] = {"cheapest": designs[0].name}
    else:
        designs, result = _compared(design, limits, known)
    if output.plot:
        plot_designs(designs, known, output.plot)
    if output.out:
        _write_fabric(_design_named(designs, output.chosen), output.out, output.nics_per_host)
        result["out"] = str(output.out)
    give(
        {"gpus": design.gpus, **result, "designs": [each.as_dict(known) for each in designs]},
        output.as_json,
        lambda: _print_table(designs, known),
    )


def _compared(design: PlannedDesign, limits: PlanLimits, known: Parts) -> tuple[list[Design], dict[str, Any]]:
    """Return the multi-plane design and its rivals, and their ratios."""
    switch, rails = known.switch(gbps_of(design.switch) / 1000), rails_of(design.gpus, design.rails)
    designs = compared(limits.wish(design), design.planes, switch, known, rails, design.oversubscription)
    return designs, {"ratios": ratios(designs)}


def _design_named(designs: list[Design], name: str | None) -> Design:
    found = next((each for each in designs if name in (None, each.name)), None)
    if found is None:
        raise UsageError(f"--design: {name!r} is not among {', '.join(each.name for each in designs)}")
    return found


def _write_fabric(design: Design, out: Path, nics_per_host: int) -> None:
    fabric = design.fabric(f"gpus-{design.nics}", nics_per_host)
    save(fabric, out, f"{design.name}: {design.total_switches} switches of {design.switch.name}, from mrc plan")


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
