"""`mrc drain` and `mrc undrain`: take a link, switch or plane out of use, after a proof of what remains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openmrc.cli.fabrics.fabric_files import FabricFile, Json, answer, load_plan

if TYPE_CHECKING:
    from openmrc.operate.operated import OperatedFabric
    from openmrc.probing.drain import DrainProof

_MOST_WAVES = 3  # of a rolling plan, printed without --json
_TARGETS = 'p0-t1-03, "p0-t0-00<>p0-t1-03", "h7 port 2", "plane 1".'

Ctl = Annotated[Path | None, typer.Option("--ctl", help="Folder of the endpoints' sockets (default: the lab's).")]


def drain(
    file: FabricFile,
    targets: Annotated[list[str] | None, typer.Argument(metavar="[TARGET]...", help=_TARGETS)] = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="Plan to take every T1 out once, in waves.")] = False,
    keep: Annotated[float, typer.Option(min=0, max=1, help="Share of its paths that every pair must keep.")] = 0.5,
    minutes: Annotated[float, typer.Option(min=0, help="Minutes that a wave takes.")] = 15.0,
    apply: Annotated[bool, typer.Option("--apply", help="Do it: FABRIC is a lab, or --ctl is given.")] = False,
    folder: Ctl = None,
    as_json: Json = False,
) -> None:
    """Prove what every pair of NICs keeps while something is taken out; with --apply, move all traffic away from it."""
    import msgspec

    from openmrc.errors import UsageError
    from openmrc.probing.drain import rolling_t1

    if bool(targets) == rolling or (rolling and apply):
        raise UsageError("give targets, or --rolling")
    if rolling:
        found = rolling_t1(load_plan(file), minutes, keep)
        answer(_rolling(msgspec.to_builtins(found), as_json), as_json)
        if not found.allowed:
            raise typer.Exit(1)
        return
    if not apply:
        proof = _proof(load_plan(file), targets or [], [], keep)
        answer(msgspec.to_builtins(proof), as_json)
        if not proof.allowed:
            raise typer.Exit(1)
        return
    _apply(str(file), targets or [], keep, folder, as_json)


def undrain(
    fabric: Annotated[str, typer.Argument(metavar="FABRIC", help="A lab that is up, or a fabric.yaml with --ctl.")],
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help=_TARGETS)],
    folder: Ctl = None,
    as_json: Json = False,
) -> None:
    """Use what was drained again, after probes have passed where a controller probes."""
    from openmrc.operate.operated import ask_undrains, await_undrained, operated, step_until
    from openmrc.operate.state_folder import StateFolder

    found = operated(fabric, folder)
    state = StateFolder(found.sockets)
    ask_undrains(state, targets)
    if not state.has_controller():
        with found.controller(probes=False) as controller:
            step_until(controller, lambda: not (set(targets) & {entry.target for entry in state.drains()}), 10.0)
            step_until(controller, lambda: controller.is_settled, 5.0)
    else:
        await_undrained(state, targets)
    answer({"undrained": list(targets)}, as_json)


def _proof(plan: Any, targets: list[str], out: Any, keep: float) -> DrainProof:
    """Prove what remains without the targets and what is out of use already."""
    import numpy as np

    from openmrc.probing.drain import prove_drain
    from openmrc.sim.scenario.fault_targets import links_at

    links = [links_at(plan.topology, each) for each in targets]
    return prove_drain(plan, targets, np.concatenate([*links, np.array(out, dtype=np.int64)]), keep)


def _apply(name: str, targets: list[str], keep: float, folder: Path | None, as_json: bool) -> None:
    import msgspec

    from openmrc.operate.operated import ask_drains, await_drained, operated
    from openmrc.operate.state_folder import StateFolder

    found = operated(name, folder)
    proof = _proof(found.plan, targets, found.out_of_use(), keep)
    if not proof.allowed:
        answer(msgspec.to_builtins(proof), as_json)
        raise typer.Exit(1)
    state = StateFolder(found.sockets)
    ask_drains(state, found.plan, targets)
    if state.has_controller():
        await_drained(state, targets)
        answer({**msgspec.to_builtins(proof), "drained": list(targets)}, as_json)
        return
    _hold(found, targets, as_json)


def _hold(found: OperatedFabric, targets: list[str], as_json: bool) -> None:
    """Be the controller until what was drained is undrained: leases have to be renewed."""
    from openmrc.cli.outcome import stoppable
    from openmrc.operate.lab_controller import run
    from openmrc.operate.state_folder import StateFolder

    state = StateFolder(found.sockets)

    def say(event: Any) -> None:
        if event.part in targets:
            answer({event.what: event.part}, as_json)
        if event.what == "drained" and not as_json:
            typer.echo("mrc: holding it; `mrc undrain` in another terminal ends this, Ctrl-C leaves it to the next "
                       "controller or, after the lease, to traffic", err=True)  # fmt: skip

    def is_over() -> bool:
        return not any(entry.target in targets and entry.stage != "refused" for entry in state.drains())

    with stoppable(), found.controller(probes=False) as controller:
        run(controller, say, lambda: is_over() and controller.is_settled)


def _rolling(found: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """Return the plan; without --json the first waves only."""
    if as_json:
        return found
    return {"allowed": found["allowed"], "minutes": found["minutes"], "waves": len(found["waves"]),
            "first": found["waves"][:_MOST_WAVES]}  # fmt: skip
