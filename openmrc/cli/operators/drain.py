"""`mrc drain`: what remains of a fabric without a link, switch or plane, proven before it is touched."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmrc.cli.fabrics.fabric_files import FabricFile, Json, answer, load_plan

_MOST_WAVES = 3  # of a rolling plan, printed without --json


def drain(
    file: FabricFile,
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET]...", help='p0-t1-03, "p0-t0-00<>p0-t1-03", "h7 port 2", "plane 1".'),
    ] = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="Plan to take every T1 out once, in waves.")] = False,
    keep: Annotated[float, typer.Option(min=0, max=1, help="Share of its paths that every pair must keep.")] = 0.5,
    minutes: Annotated[float, typer.Option(min=0, help="Minutes that a wave takes.")] = 15.0,
    as_json: Json = False,
) -> None:
    """Prove what every pair of NICs keeps while something is taken out. Nothing is changed."""
    import msgspec
    import numpy as np

    from openmrc.errors import UsageError
    from openmrc.probing.drain import prove_drain, rolling_t1
    from openmrc.sim.scenario.fault_targets import links_at

    if bool(targets) == rolling:
        raise UsageError("give targets, or --rolling")
    plan = load_plan(file)
    if rolling:
        found = rolling_t1(plan, minutes, keep)
        answer(_rolling(msgspec.to_builtins(found), as_json), as_json)
        allowed = found.allowed
    else:
        links = np.concatenate([links_at(plan.topology, each) for each in targets or []])
        proof = prove_drain(plan, targets or [], links, keep)
        answer(msgspec.to_builtins(proof), as_json)
        allowed = proof.allowed
    if not allowed:
        raise typer.Exit(1)


def _rolling(found: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """Return the plan; without --json the first waves only."""
    if as_json:
        return found
    return {"allowed": found["allowed"], "minutes": found["minutes"], "waves": len(found["waves"]),
            "first": found["waves"][:_MOST_WAVES]}  # fmt: skip
