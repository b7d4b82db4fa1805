"""`mrc drain` and `mrc undrain`: take a link, switch or plane out of use, after a proof of what remains."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer

from openmrc.base.terminal import counted, row_columns
from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError, UsageError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.model.naming import links_at
from openmrc.operations.control.controllers import run
from openmrc.operations.control.drain_proof import DrainProof, prove_drain, rolling_t1
from openmrc.operations.control.operated import (
    OperatedFabric,
    ask_drains,
    ask_undrains,
    await_drained,
    await_undrained,
    operated,
    surveyed,
    undrain_proof,
)
from openmrc.operations.control.simulated_step import simulated_collectives
from openmrc.operations.fleets.state_folder import StateFolder
from openmrc.planner.drained_step import NETWORK, drained_steps, slowed_collectives
from openmrc.planner.response_table import FILE, Responses, responses
from openmrc.programs.fabrics.files import answer
from openmrc.programs.fabrics.verdict import parts_text, proof_lines
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json, stoppable
from openmrc.sim.network.reach import nic_rate


def cost_lines(found: dict[str, Any], minutes: float) -> Iterator[str]:
    """Yield what a step of training costs while that lasts; `found` is the drain's answer as `--json` prints it."""
    if "step_unknown" in found:
        yield from ("", f"what a step of training costs meanwhile is not known: {found['step_unknown']}")
    if "step" in found:
        yield from (
            "",
            f"a step of training meanwhile, at most, by what failures cost; {minutes:g} minutes:",
            *_step_rows(found["step"]),
        )
    if "simulated" in found:
        yield from ("", "the same by packets on this fabric:", *_step_rows(found["simulated"]["step"]))


def _step_rows(steps: list[dict[str, Any]]) -> list[str]:
    rows = [("model", "step longer", "job loses", "collectives take")]
    for each in steps:
        slow = ", ".join(f"{name} {ratio:.3f}" for name, ratio in each["collectives"].items())
        rows.append((each["model"], f"{each['step_percent']:.2f} %", f"{each['lost_s']:,.1f} s", slow))
    return row_columns(rows)


def plan_lines(told: dict[str, Any], waves: Sequence[tuple[tuple[str, ...], DrainProof]], most: int) -> Iterator[str]:
    """Yield a rolling plan: how long it takes, and its first waves."""
    verdict = "PROVEN" if told["allowed"] else "REFUSED"
    yield f"{verdict}: {counted(len(waves), 'wave', 'waves')}, {told['minutes']:g} minutes, each T1 out once."
    yield from cost_lines(told, told["minutes"])
    yield ""
    rows = [("wave", "switches", "worst pair keeps", "which")]
    for number, (switches, proof) in enumerate(waves[:most], 1):
        rows.append((f"{number}", f"{len(switches):,}", f"{proof.worst_share:.1%}", parts_text(switches)))
    yield from row_columns(rows)
    if len(waves) > most:
        yield f"  and {len(waves) - most:,} more; --json has all"


_MOST_WAVES = 3  # of a rolling plan, printed without --json
_FABRICS = "A lab that is up, a fabric.yaml, or the scenario of a simulation."
_TABLE = "What failures cost, measured for NICs of this rate; the built-in table: 800G on 8 planes."
_TARGETS = 'p0-t1-03, "p0-t0-00<>p0-t1-03", "h7 port 2", "plane 1".'

Why = Annotated[str, typer.Option("--why", help="Reason, for the audit log of the controller.")]
Ctl = Annotated[Path | None, typer.Option("--ctl", help="Folder of the endpoints' sockets (default: the lab's).")]


@dataclass(frozen=True)
class Counting:
    """What a drain has to leave, and how its cost is counted."""

    keep: Annotated[float, typer.Option(min=0, max=1, help="Share of its paths that every pair must keep.")] = 0.5
    minutes: Annotated[float, typer.Option(min=0, help="Minutes that a drain or wave takes.")] = 15.0
    simulate: Annotated[bool, typer.Option("--simulate", help="Count the cost of a step packet by packet.")] = False
    table: Annotated[Path | None, typer.Option("--responses", help=_TABLE)] = None


@with_groups
def drain(
    fabric: Annotated[str, typer.Argument(metavar="FABRIC", help=_FABRICS)],
    counting: Counting,
    targets: Annotated[list[str] | None, typer.Argument(metavar="TARGET", help=_TARGETS)] = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="Plan to take every T1 out once, in waves.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Prove and count only: the default.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Do it: FABRIC is a lab, or --ctl is given.")] = False,
    why: Why = "",
    folder: Ctl = None,
    as_json: Json = False,
) -> None:
    """Prove what every pair of NICs keeps while something is taken out; with --apply, move all traffic away from it.

    Without --apply, also what a step of training costs meanwhile.
    """
    if bool(targets) == rolling or (rolling and (apply or counting.simulate)):
        raise UsageError("give targets, or --rolling, which is a plan: without --apply and --simulate")
    if apply and (dry_run or counting.simulate or counting.table):
        raise UsageError("--apply: not together with --dry-run, --simulate or --responses")
    if apply:
        _apply(operated(fabric, folder), targets or [], counting.keep, why, as_json)
        return
    plan, out = surveyed(fabric, folder)
    known = _fitting(plan, counting.table)
    if rolling:
        _plan_waves(plan, counting, known, as_json)
        return
    proof = _proof(plan, targets or [], out, counting.keep)
    found = msgspec.to_builtins(proof)
    if proof.allowed:
        found |= _step_costs(proof, counting.minutes, known)
        if counting.simulate:
            found["simulated"] = _simulated(plan, targets or [], out, counting.minutes, known)
    _say(proof, found, counting.minutes, as_json)
    if not proof.allowed:
        raise typer.Exit(1)


def _say(proof: DrainProof, found: dict[str, Any], minutes: float, as_json: bool) -> None:
    """Print a proof, and what else was found."""
    if as_json:
        answer(found, True)
        return
    typer.echo("\n".join([*proof_lines(proof), *cost_lines(found, minutes)]))


def undrain(
    fabric: Annotated[str, typer.Argument(metavar="FABRIC", help=_FABRICS)],
    targets: Annotated[list[str], typer.Argument(metavar="TARGET", help=_TARGETS)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only prove what every pair has then.")] = False,
    why: Why = "",
    folder: Ctl = None,
    as_json: Json = False,
) -> None:
    """Use what was drained again, after probes have passed where a controller probes."""
    found = operated(fabric, folder)
    if dry_run:
        proof = undrain_proof(found, targets)
        _say(proof, msgspec.to_builtins(proof), 0.0, as_json)
        return
    state = StateFolder(found.sockets)
    ask_undrains(state, targets, why)
    if not state.has_controller():
        end = time.monotonic() + 15.0

        def is_over() -> bool:
            left = set(targets) & {entry.target for entry in state.drains()}
            return time.monotonic() > end or (controller.is_settled and not left)

        with found.controller(probes=False) as controller:
            run(controller, lambda event: None, is_over)
    else:
        await_undrained(state, targets)
    answer({"undrained": list(targets)}, True) if as_json else typer.echo(f"undrained: {', '.join(targets)}")


def _proof(plan: UsidPlan, targets: list[str], out: Ints, keep: float) -> DrainProof:
    """Prove what remains without the targets and what is out of use already."""
    return prove_drain(plan, targets, _links(plan, targets, out), keep)


def _links(plan: UsidPlan, targets: list[str], out: Ints) -> Ints:
    """Return the links of the targets, both ways, and those that are out of use already."""
    links = np.concatenate([links_at(plan.topology, each) for each in targets])
    return np.union1d(plan.topology.both_ways(links), out)


def _fitting(plan: UsidPlan, given: Path | None) -> Responses | str:
    """Return the table of responses, or why the built-in one says nothing of this fabric; the given one has to fit."""
    table = responses(given or FILE)
    try:
        table.check(NETWORK, nic_rate(plan.topology) / 1e9, len(plan.topology.planes))
    except ConfigError as error:
        if given is not None:
            raise
        return str(error)
    return table


def _step_costs(proof: DrainProof, minutes: float, table: Responses | str) -> dict[str, Any]:
    """Return what a step of training costs meanwhile, from the table of responses, or why that is not known."""
    if isinstance(table, str):
        return {"step_unknown": table}
    slow = slowed_collectives(proof.planes_left, proof.worst_share, proof.cables > 1, table)
    return {"step": msgspec.to_builtins(drained_steps(slow, minutes, table))}


def _simulated(plan: UsidPlan, targets: list[str], out: Ints, minutes: float, table: Responses | str) -> dict[str, Any]:
    """Return the same by packets on this very fabric."""
    found = simulated_collectives(plan, _links(plan, targets, out))
    slow = {each.collective: each.slow for each in found}
    steps = drained_steps(slow, minutes, None if isinstance(table, str) else table)
    return {"collectives": msgspec.to_builtins(found), "step": msgspec.to_builtins(steps)}


def _apply(found: OperatedFabric, targets: list[str], keep: float, why: str, as_json: bool) -> None:
    proof = _proof(found.plan, targets, found.out_of_use(), keep)
    if not proof.allowed:
        _say(proof, msgspec.to_builtins(proof), 0.0, as_json)
        raise typer.Exit(1)
    state = StateFolder(found.sockets)
    ask_drains(state, found.plan, targets, why)
    if state.has_controller():
        await_drained(state, targets)
        _say(proof, {**msgspec.to_builtins(proof), "drained": list(targets)}, 0.0, as_json)
        if not as_json:
            typer.echo(f"\ndrained: {', '.join(targets)}")
        return
    _hold(found, targets, as_json)


def _hold(found: OperatedFabric, targets: list[str], as_json: bool) -> None:
    """Be the controller until what was drained is undrained: leases have to be renewed."""
    state = StateFolder(found.sockets)

    def say(event: Any) -> None:
        if event.part in targets:
            answer({event.what: event.part}, as_json)
        if event.what == "drained" and not as_json:
            typer.echo(
                "mrc: holding it; `mrc undrain` in another terminal ends this, Ctrl-C leaves it to the next "
                "controller or, after the lease, to traffic",
                err=True,
            )

    def is_over() -> bool:
        return not any(entry.target in targets and entry.stage != "refused" for entry in state.drains())

    with stoppable(), found.controller(probes=False) as controller:
        run(controller, say, lambda: is_over() and controller.is_settled)


def _plan_waves(plan: UsidPlan, counting: Counting, table: Responses | str, as_json: bool) -> None:
    """Print the plan that takes every T1 out once; without --json the first waves only."""
    found = rolling_t1(plan, counting.minutes, counting.keep)
    told: dict[str, Any] = {"allowed": found.allowed, "minutes": found.minutes}
    if found.allowed:
        worst = min((wave.proof for wave in found.waves), key=lambda proof: proof.worst_share)
        told |= _step_costs(worst, found.minutes, table)
    if as_json:
        answer({**told, "waves": msgspec.to_builtins(found.waves)}, True)
    else:
        waves = [(wave.switches, wave.proof) for wave in found.waves]
        typer.echo("\n".join(plan_lines(told, waves, _MOST_WAVES)))
    if not found.allowed:
        raise typer.Exit(1)
