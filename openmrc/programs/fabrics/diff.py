"""`mrc fabric diff`: compare installed configurations with the plan."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from openmrc.base.documents import MOST_DUMP_BYTES, read_text
from openmrc.errors import ConfigError, UsageError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.view import view
from openmrc.fabric.proof.diff import compare, compare_folder, compare_running, not_checked
from openmrc.fabric.readback.dump import Difference
from openmrc.lab.switch_state import read_state
from openmrc.programs.fabrics.export import tracked
from openmrc.programs.fabrics.files import FabricFile, SwitchesAndHosts, answer, fork_each, load_plan
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json

_MOST_SHOWN = 20  # switches shown in full


@with_groups
def diff(
    file: FabricFile,
    what: Annotated[str, typer.Argument(metavar="SWITCH|FOLDER", help="Switch of the dump, or a folder of dumps.")],
    asked: SwitchesAndHosts,
    dump: Annotated[Path | None, typer.Argument(help="`ip -6 -j route`, a configuration, FRR's JSON.")] = None,
    of: Annotated[
        str | None,
        typer.Option("--of", help="linux, sonic, frr, cumulus or eos; a folder's target is detected from its files."),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--netns", help="Read the running state of this network namespace instead of a dump.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print missing, extra and wrong entries of one switch or of all; exit 1 if there are any."""
    plan = load_plan(file)
    options = asked.of(plan.topology.fabric.plant)
    if Path(what).is_dir() and dump is None and namespace is None:
        _whole(plan, Path(what), options, of, as_json)
        return
    if (dump is None) == (namespace is None):
        raise UsageError("give a folder, or a switch with either a dump file or --netns NAME")
    switch, target = plan.topology.node_named(what), of or "linux"
    if namespace is not None:
        seen = view(plan, switch, options)
        found = compare_running(seen, target, read_state(seen, namespace))
    else:
        found = compare(plan, switch, target, _read(dump), str(dump), options)
    answer({"clean": found.clean, **msgspec.to_builtins(found)}, as_json)
    if not found.clean:
        raise typer.Exit(1)


def _whole(plan: UsidPlan, folder: Path, options: ExportOptions, of: str | None, as_json: bool) -> None:
    switches = plan.topology.nodes - plan.topology.nics
    found = list(tracked(compare_folder(plan, folder, options, of, fork_each), "comparing", switches))
    differing = [each for each in found if not each.clean]
    result: dict[str, Any] = {"clean": not differing, "switches": len(found), "differing": len(differing)}
    result["not_checked"] = not_checked(found)
    if as_json:
        answer(
            {**result, "items": sum(each.planned for each in found), "differences": msgspec.to_builtins(differing)},
            True,
        )
    else:
        show(differing)
        answer(result, False)
    if differing:
        raise typer.Exit(1)


def show(differing: list[Difference]) -> None:
    """Print a table of the switches that differ, then the differences of the first of them."""
    if not differing:
        return
    width = max(len(each.switch) for each in differing)
    typer.echo(f"{'switch':{width}}  missing  extra  wrong")
    for each in differing:
        typer.echo(f"{each.switch:{width}}  {len(each.missing):7}  {len(each.extra):5}  {len(each.wrong):5}")
    for each in differing[:_MOST_SHOWN]:
        typer.echo(f"\n{each.switch}")
        for line in each.missing:
            typer.echo(f"  missing    {line}")
        for line in each.extra:
            typer.echo(f"  extra      {line}")
        for pair in each.wrong:
            typer.echo(f"  planned    {pair['planned']}\n  installed  {pair['installed']}")
    if len(differing) > _MOST_SHOWN:
        typer.echo(f"\n{len(differing) - _MOST_SHOWN} more switches differ; --json lists all")
    typer.echo()


def _read(path: Path | None) -> str:
    assert path is not None
    text = read_text(path, MOST_DUMP_BYTES)
    if not text.strip():  # a switch without entries still writes brackets or headings: the dump went wrong
        raise ConfigError(f"{path}: nothing in it; expected what the switch printed")
    return text
