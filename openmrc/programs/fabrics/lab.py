"""`mrc lab`: a real SRv6 fabric in network namespaces of this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from openmrc.base.faults import Schedule, change_text, not_empty
from openmrc.errors import ConfigError, UsageError
from openmrc.fabric.model.build import load
from openmrc.lab import lifetime
from openmrc.lab.faults import Breaker, ExecutedStep
from openmrc.lab.run import become
from openmrc.lab.status import LabStatus, LinkStatus
from openmrc.lab.status import status as read
from openmrc.programs.outcome import Json, give, print_json, stoppable

Name = Annotated[str | None, typer.Option("--lab", "-l", help="Name of the lab, if several are up.")]


def up(
    fabric: Annotated[Path, typer.Argument(metavar="FABRIC", help="fabric.yaml with at most two tiers.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the lab (default: the fabric's name).")] = None,
    trimming: Annotated[
        bool, typer.Option("--trim/--no-trim", help="Trim packets at a full port, or drop them.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Build hosts, switches and cables, with uSID routes, link rates, ECN marking and trimming."""
    with stoppable(), _bar("namespaces") as progress:
        written = lifetime.up(fabric, name, trimming, progress)
    called = name or load(fabric).name
    result = {"name": called, "ports": written.ports, "trimming": trimming, "wall_s": written.build_s}
    give(result, as_json, f"lab {called} is up: {written.ports} ports, {written.build_s:.2f} s")


def down(
    name: Annotated[str | None, typer.Argument(help="Name of the lab.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All labs of this machine.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a lab, also an incomplete one, and stop the processes in it."""
    names = [each["name"] for each in lifetime.up_now()] if everything else [_chosen(name)]
    removed = [lifetime.down(each) for each in names]
    lines = [f"lab {each['name']} removed: {each['namespaces']} namespaces" for each in removed]
    give({"removed": removed}, as_json, "\n".join(lines) or "no lab was up")


def list_(as_json: Json = False) -> None:
    """List all labs: up, incomplete, or gone, of which only the record is left."""
    labs = lifetime.up_now()
    lines = [f"{each['name']:<24} {each['state']:<10} {each['namespaces']:>5} namespaces" for each in labs]
    give({"labs": labs}, as_json, "\n".join(lines) or "no lab is up")


def status(
    name: Annotated[str | None, typer.Argument(help="Name of the lab.")] = None,
    lab: Name = None,
    everything: Annotated[bool, typer.Option("--all", help="Also list unused links and uSIDs.")] = False,
    as_json: Json = False,
) -> None:
    """Show sent, arrived, marked, trimmed and lost packets per link, losses by cause, and packets per uSID."""
    found = read(_chosen(name if name is not None else lab))
    if as_json:
        print_json(found)
        return
    _show_links(found, everything)
    _show_sids(found, everything)


def exec(
    node: Annotated[str, typer.Argument(help="Host or switch, such as h0 or p0-t0-00.")],
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Command to run.")],
    name: Name = None,
) -> None:
    """Run a command on one of the lab's nodes; MRC endpoints there find their addresses and paths automatically."""
    become(_chosen(name), node, command[1:] if command[0] == "--" else command)


exec.context_settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}  # type: ignore[attr-defined]


def fault(
    terms: Annotated[
        str | None,
        typer.Argument(help='"down: p0-t1-01", "loss: 1%, on: h3 port 2", "at: 1s, for: 50ms, down: plane 0".'),
    ] = None,
    schedule: Annotated[Path | None, typer.Option("--schedule", help="YAML file of such steps.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Clear all faults first.")] = False,
    name: Name = None,
    as_json: Json = False,
) -> None:
    """Inject and clear faults, now or on a schedule; return after the last step."""
    if terms is not None and schedule is not None:
        raise UsageError("fault: give a fault or --schedule, not both")
    if terms is None and schedule is None and not clear:
        raise UsageError('fault: no fault given; give one such as "down: p0-t1-01", or --schedule FILE, or --clear')
    breaker = Breaker(_chosen(name))
    steps = Schedule.read(schedule) if schedule else Schedule.parse(terms or "", "fault")
    breaker.check(steps if clear else not_empty(steps, str(schedule or "fault")))
    if clear:
        breaker.clear()

    def say(each: ExecutedStep) -> None:
        if not as_json:
            typer.echo(f"{each.at_s:9.3f} s  {each.where}: {change_text(each.change)}")

    done = breaker.run(steps, say)
    if as_json:
        give({"lab": breaker.name, "down": breaker.record.down, "steps": [asdict(each) for each in done]}, True, "")


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal; yields the function that updates it."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _chosen(name: str | None) -> str:
    """Return the selected lab: the named one, or the only one, which is then said on standard error.

    Labs that are gone count if there is no other.
    """
    if name is not None:
        return name
    known = lifetime.up_now()
    labs = [str(each["name"]) for each in known if each["state"] != "gone"] or [str(each["name"]) for each in known]
    if len(labs) == 1:
        typer.echo(f"mrc: lab {labs[0]}", err=True)
        return labs[0]
    raise ConfigError(f"{len(labs)} labs are up ({', '.join(labs) or 'none'}); select one, or `mrc lab up FABRIC`")


def _show_links(found: LabStatus, everything: bool) -> None:
    columns = ("sent", "arrived", "bytes", "control", "marked", "trimmed", "corrupted")
    typer.echo(
        f"{'link':<28}{''.join(f'{name:>12}' for name in columns)}{'lost':>10}{'queue us':>10}  state, lost by cause"
    )
    for link in found.links:
        if everything or link.sent or not link.up:
            numbers = "".join(f"{getattr(link, name):>12}" for name in columns)
            state = link.state if link.up else link.state.upper()
            lost = f"{link.losses.total:>10}{link.longest_queue_us:>10.0f}"
            typer.echo(f"{link.name:<28}{numbers}{lost}  {', '.join([state, *_ends_of(link)])}")


def _ends_of(link: LinkStatus) -> list[str]:
    """Say what became of the packets that did not arrive."""
    said = [f"{count} {cause.replace('_', ' ')}" for cause, count in link.losses.named().items()]
    rest = (("waiting", link.waiting), ("unaccounted", link.unaccounted))
    return said + [f"{count} {word}" for word, count in rest if count]


def _show_sids(found: LabStatus, everything: bool) -> None:
    typer.echo(f"\n{'switch':<14}{'uSID':<24}{'packets':>12}{'bytes':>14}{'errors':>10}")
    for sid in found.sids:
        if everything or sid.packets or sid.errors:
            note = f"  {sid.note}" if sid.note else ""
            typer.echo(f"{sid.switch:<14}{sid.prefix:<24}{sid.packets:>12}{sid.bytes:>14}{sid.errors:>10}{note}")
