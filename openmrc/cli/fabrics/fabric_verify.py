"""`mrc fabric verify`: prove a fabric's tables: planned, from files, or installed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openmrc.cli.fabrics.fabric_diff import details, show
from openmrc.cli.fabrics.fabric_export import tracked
from openmrc.cli.fabrics.fabric_files import FabricFile, Json, TableFile, answer, load_plan, load_tables
from openmrc.cli.fabrics.fabric_options import with_export_options

if TYPE_CHECKING:
    from openmrc.fabric.addressing.usid import UsidPlan
    from openmrc.fabric.proof.diff import Installed


@with_export_options
def verify(
    file: FabricFile,
    options: Any,
    tables: TableFile = None,
    installed: Annotated[
        Path | None, typer.Option("--from", help="Folder of dumps or configurations: verify the installed tables.")
    ] = None,
    of: Annotated[str | None, typer.Option("--of", help="With --from: sonic, frr, cumulus, linux or eos.")] = None,
    max_entries: Annotated[int | None, typer.Option(min=1, help="Largest number of entries per switch.")] = None,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Also send a packet along every path (slow).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Prove that every EV of every pair of NICs is delivered on the path that it names; exit 1 if not."""
    import msgspec

    from openmrc.errors import UsageError
    from openmrc.fabric.proof.verify import verify as prove

    if tables is not None and installed is not None:
        raise UsageError("--tables and --from exclude each other; give one")
    start = time.perf_counter()
    plan = load_plan(file)
    found = _installed(plan, installed, options, of) if installed is not None else None
    given = _tables(plan, found) if found is not None else load_tables(plan, tables)
    verdict = prove(plan, given, max_entries)
    result = {"proven": verdict.proven, **_of_dumps(found, as_json), **msgspec.to_builtins(verdict)}
    result["wall_s"] = time.perf_counter() - start
    if exhaustive:
        from openmrc.fabric.addressing.sid_tables import build_tables
        from openmrc.fabric.proof.exhaustive import check_all

        result["exhaustive"] = msgspec.to_builtins(check_all(plan, given or build_tables(plan)))
        result["exhaustive_wall_s"] = time.perf_counter() - start - result["wall_s"]
    answer(result, as_json)
    if not verdict.proven or not result.get("clean", True):
        raise typer.Exit(1)


def _installed(plan: UsidPlan, folder: Path, options: Any, of: str | None) -> list[Installed]:
    from openmrc.apps.forks import fork_each
    from openmrc.fabric.proof.diff import read_folder

    switches = plan.topology.nodes - plan.topology.nics
    return list(tracked(read_folder(plan, folder, options, of, fork_each), "reading", switches))


def _tables(plan: UsidPlan, found: list[Installed]) -> Any:
    from openmrc.fabric.proof.diff import tables_of

    return tables_of(plan.topology, found)


def _of_dumps(found: list[Installed] | None, as_json: bool) -> dict[str, Any]:
    """Return further findings of the dumps: differences, and entries that do not work."""
    if found is None:
        return {}
    differing = [each.difference for each in found if not each.difference.clean]
    dead = {each.difference.switch: each.dead for each in found if each.dead}
    if not as_json:
        show(differing)
    return {
        "clean": not differing,
        "differing": len(differing),
        **({"differences": details(differing)} if as_json else {}),
        "not_working": dead,
    }
