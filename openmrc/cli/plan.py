"""`mrc plan`: what a fabric of a size takes, and what its failures cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from openmrc.fabric.design import Design
    from openmrc.fabric.parts import Parts

app = typer.Typer(help="Size a fabric: switches, optics, power, cost, blast radius, availability.")

Gpus = Annotated[int, typer.Option("--gpus", min=1, help="NICs to connect; one NIC a GPU.")]
Nic = Annotated[str, typer.Option("--nic", help="Rate of a NIC, such as 800G.")]
Planes = Annotated[int, typer.Option("--planes", min=1, help="Planes; a NIC has one port in each.")]
SwitchSize = Annotated[str, typer.Option("--switch", help="Capacity of a switch, such as 51.2T.")]
PartsFile = Annotated[Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Write a PNG here (needs the plot extra).")]


@app.callback(invoke_without_command=True)
def plan(
    context: typer.Context,
    gpus: Gpus = 131072,
    nic: Nic = "800G",
    planes: Planes = 8,
    switch: SwitchSize = "51.2T",
    rails: Annotated[int, typer.Option(min=1, help="NICs a machine, for the rail-optimised design.")] = 8,
    oversubscription: Annotated[float, typer.Option(min=1, help="Capacity down : up at T0.")] = 1,
    parts: PartsFile = None,
    cheapest: Annotated[bool, typer.Option("--cheapest", help="Search all designs the parts allow.")] = False,
    max_hops: Annotated[int | None, typer.Option(help="Most switches on a path.")] = None,
    max_loss: Annotated[float | None, typer.Option(help="Most a NIC may lose by one link, in percent.")] = None,
    max_watts: Annotated[float | None, typer.Option(help="Most power.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Most cost.")] = None,
    min_paths: Annotated[int | None, typer.Option(help="Fewest paths between two NICs.")] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Compare the multi-plane design with the single-plane ones, or search for the cheapest."""
    if context.invoked_subcommand:
        return
    from openmrc.fabric.compare import Wish, compared, ratios
    from openmrc.fabric.compare import cheapest as search
    from openmrc.fabric.parts import load_parts
    from openmrc.fabric.rates import gbps

    known = load_parts(parts)
    wish = Wish(gpus, gbps(nic), max_hops, max_loss, max_watts, max_cost, min_paths, oversubscription)
    if cheapest:
        designs = search(wish, known)
        said: dict[str, Any] = {"cheapest": designs[0].name}
    else:
        designs = compared(wish, planes, known.switch(gbps(switch) / 1000), known, rails, oversubscription)
        said = {"ratios": ratios(designs)}
    if plot:
        from openmrc.fabric.plot import plot_designs

        plot_designs(designs, known, plot)
    if as_json:
        _print_json({"gpus": gpus, **said, "designs": [each.as_dict(known) for each in designs]})
    else:
        _print_table(designs, known)


def _print_json(what: dict[str, Any]) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(what).decode())


def _print_table(designs: list[Design], parts: Parts) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{designs[0].nics:,} NICs of {designs[0].nic_gbps:g}G", caption=_caption(designs, parts))
    table.add_column("")
    for each in designs[:6]:
        table.add_column(each.name, justify="right", overflow="fold")
    for cells in zip(*(_column(each) for each in designs[:6]), strict=True):
        table.add_row(cells[0][0], *(value for _, value in cells))
    Console().print(table)


def _column(each: Design) -> list[tuple[str, str]]:
    """Return one design's cells, each with its row's name."""
    tiers = [each.networks * count for count in each.network.switches] + [0] * 4
    loss = each.loss_percent()
    rows = [
        ("networks not joined", str(each.islands)),
        ("switch", f"{each.switch.name}, {each.network.radix} ports"),
        ("tiers", str(each.tiers)),
        ("switches on a path, at most", str(each.max_hops)),
        *((f"T{tier} switches", f"{tiers[tier]:,}") for tier in range(4)),
        ("switches", f"{each.total_switches:,}"),
        ("links", f"{each.links:,}"),
        ("optics", f"{each.optics:,}"),
        ("paths", f"{each.planes * each.network.paths:,}"),
        ("bisection, Tb/s", f"{each.bisection_tbps:,.0f}"),
        ("power, MW", f"{each.watts / 1e6:.2f}"),
        ("cost, M", f"{each.cost / 1e6:,.1f}"),
    ]
    names = {"nic_link": "a NIC-T0 link", "t0_t1_link": "a T0-T1 link", "t0": "a T0", "t1": "a T1", "plane": "a plane"}
    return rows + [(f"lost by {said}", f"{loss[part]:.3g} %") for part, said in names.items()]


def _caption(designs: list[Design], parts: Parts) -> str:
    used = {each.switch.name: each.switch for each in designs}.values()
    assumed = [switch.name for switch in used if switch.assumption]
    if parts.optic.assumption:
        assumed.append("optic")
    note = f"Assumed watts or prices: {', '.join(assumed)}; see --parts. " if assumed else ""
    return note + "Losses between switches are shares of a NIC's capacity in the plane, others of its whole capacity."
