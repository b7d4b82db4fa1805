"""`mrc fabric verify`: prove a fabric's tables, planned or installed."""

import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer

from openmrc.errors import UsageError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.model.naming import links_at
from openmrc.fabric.proof.diff import Installed, not_checked, read_folder, read_running, tables_of
from openmrc.fabric.proof.verify import Verdict
from openmrc.fabric.proof.verify import verify as prove
from openmrc.lab.switch_state import read_state
from openmrc.operations.control.drain_proof import DrainProof, prove_drain
from openmrc.programs.fabrics.diff import show
from openmrc.programs.fabrics.export import tracked
from openmrc.programs.fabrics.files import (
    FabricFile,
    SwitchesAndHosts,
    answer,
    fork_each,
    load_plan,
    seconds_since,
)
from openmrc.programs.fabrics.verdict import proof_lines, verdict_text
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json

Folder = Annotated[
    Path | None, typer.Option("--from", help="Folder of dumps or configurations: verify the installed tables.")
]
Namespaces = Annotated[
    str | None, typer.Option("--netns", metavar="PREFIX", help="Verify what runs in the namespaces PREFIX.SWITCH.")
]
Of = Annotated[str | None, typer.Option("--of", help="With --from: sonic, frr, cumulus, linux or eos.")]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="SWITCH|LINK|PLANE",
        help='Also prove what every pair keeps without p0-t1-03, "h7 port 2", "plane 1"; may be repeated.',
    ),
]


@with_groups
def verify(
    file: FabricFile,
    asked: SwitchesAndHosts,
    installed: Folder = None,
    namespaces: Namespaces = None,
    of: Of = None,
    without: Without = None,
    as_json: Json = False,
) -> None:
    """Prove that every EV of every pair of NICs is delivered on the path that it names; exit 1 if not."""
    if installed is not None and namespaces is not None:
        raise UsageError("--from and --netns exclude each other; give one")
    start = time.perf_counter()
    plan = load_plan(file)
    options = asked.of(plan.topology.fabric.plant)
    found = _found(plan, options, installed, of, namespaces)
    given = tables_of(plan.topology, found) if found is not None else None
    verdict = prove(plan, given)
    left = None
    if without:
        links = np.concatenate([links_at(plan.topology, each) for each in without])
        left = prove_drain(plan, without, links, tables=given)
    result = {"proven": verdict.proven, **_of_dumps(found), **msgspec.to_builtins(verdict)}
    if left is not None:
        result["without"] = {"proven": left.allowed, **msgspec.to_builtins(left)}
    result["wall_s"] = seconds_since(start)
    if as_json:
        answer(result, True)
    else:
        _show(verdict, found, left, result)
    if not verdict.proven or not result.get("clean", True) or (left is not None and not left.allowed):
        raise typer.Exit(1)


def _show(verdict: Verdict, found: list[Installed] | None, left: DrainProof | None, result: dict[str, Any]) -> None:
    not_read = result.get("not_checked", [])
    unread = None if found is None else [what.removeprefix("running kernel: ") for what in not_read]
    typer.echo(verdict_text(verdict, result["wall_s"], unread))
    if left is not None:
        typer.echo("\n".join(["", *proof_lines(left, refused="NOT PROVEN")]))
    if found is not None:
        _show_dumps(found, not_read)


def _show_dumps(found: list[Installed], not_read: list[str]) -> None:
    """Print the differences from the plan, and the entries that do not work."""
    differing = [each.difference for each in found if not each.difference.clean]
    typer.echo(f"\n{len(found) - len(differing)} of {len(found)} switches are configured as planned\n")
    show(differing)
    for each in found:
        for why in each.dead:
            typer.echo(f"not working  {each.difference.switch}  {why}")
    for what in not_read:
        typer.echo(f"not looked at  {what}")


def _found(
    plan: UsidPlan, options: ExportOptions, folder: Path | None, of: str | None, prefix: str | None
) -> list[Installed] | None:
    """Return what a folder's dumps or namespaces install, None if neither is given."""
    if folder is not None:
        found = read_folder(plan, folder, options, of, fork_each)
    elif prefix is not None:
        begin = prefix.removesuffix(".")
        found = read_running(plan, "linux", lambda switch: read_state(switch, f"{begin}.{switch.name}"), options)
    else:
        return None
    return list(tracked(found, "reading", plan.topology.nodes - plan.topology.nics))


def _of_dumps(found: list[Installed] | None) -> dict[str, Any]:
    """Return further findings of the dumps: differences, and entries that do not work."""
    if found is None:
        return {}
    differing = [each.difference for each in found if not each.difference.clean]
    dead = {each.difference.switch: each.dead for each in found if each.dead}
    return {
        "clean": not differing,
        "differing": len(differing),
        "differences": msgspec.to_builtins(differing),
        "not_working": dead,
        "not_checked": not_checked([each.difference for each in found]),
    }
