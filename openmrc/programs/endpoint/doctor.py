"""`mrc doctor`: check whether this machine can run a lab, and which timeout of a job fires first."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from openmrc.errors import UsageError
from openmrc.lab.doctor import examine
from openmrc.programs.endpoint.firing_order import FailureOrder, findings, orders
from openmrc.programs.endpoint.job_settings import INFINITE, JobSettings, read_settings
from openmrc.programs.endpoint.timer_table import as_markdown, in_words
from openmrc.programs.outcome import Json, give, print_json


def report_timeouts(file: Path | None, as_json: bool) -> bool:
    """Print the firing orders and contradictions of a job's settings; return whether there are none of the latter."""
    settings = read_settings(os.environ, file)
    found = findings(settings)
    give(_document(settings, found), as_json, lambda: _print(settings, found))
    return not found


def _print(settings: JobSettings, found: list[str]) -> None:
    way = f" over {'libmrc' if settings.transport == 'mrc' else 'RDMA NICs'}" if settings.backend == "nccl" else ""
    typer.echo(f"backend {settings.backend}{way}; times count from the failure, while a collective runs")
    for order in orders(settings):
        typer.echo(f"\n{order.failure}")
        for each in order.firings:
            mark = "->" if each is order.first else "  "
            typer.echo(f"  {mark} {in_words(each.seconds):>9}  {each.timer:<32} {each.effect}")
        if order.first is None:
            typer.echo("     the job goes on" if _is_repaired(order) else "     nothing ends it")
    for each_finding in found:
        typer.echo(f"\n! {each_finding}")
    typer.echo(f"\n{len(found) or 'no'} contradiction{'' if len(found) == 1 else 's'} found; -> is what the job sees")


def _is_repaired(order: FailureOrder) -> bool:
    return not any(each.seconds == INFINITE or "nothing" in each.effect for each in order.firings)


def _document(settings: JobSettings, found: list[str]) -> dict[str, Any]:
    failures = [
        {
            "failure": order.failure,
            "first": order.first.timer if order.first is not None else None,
            "firings": order.firings,  # infinite seconds become null
        }
        for order in orders(settings)
    ]
    return {"backend": settings.backend, "transport": settings.transport, "failures": failures, "findings": found}


def doctor(
    timeouts: Annotated[bool, typer.Option("--timeouts", help="Say which timer of a job fires first.")] = False,
    timers: Annotated[bool, typer.Option("--timers", help="Print the table of all timers, as Markdown.")] = False,
    file: Annotated[Path | None, typer.Option(help="The job's settings, for --timeouts.")] = None,
    as_json: Json = False,
) -> None:
    """List what this machine lacks for `mrc lab`, with remedies; without root, some checks are inconclusive.

    With --timeouts: read the timeouts of endpoint, torch, NCCL and job from the environment and --file, and say for
    each failure which fires first. The exit code is 1 if they contradict each other.
    """
    if file is not None and not timeouts:
        raise UsageError("--file: needs --timeouts")
    if timers:
        typer.echo(as_markdown())
        return
    if timeouts:
        if not report_timeouts(file, as_json):
            raise typer.Exit(1)
        return
    _report_lab(as_json)


def _report_lab(as_json: bool) -> None:
    report = examine()
    if as_json:
        print_json(report)
    else:
        typer.echo(f"kernel {report.kernel}, {'as root' if report.root else 'not root: some checks are inconclusive'}")
        for each in report.findings:
            mark = "?" if each.met is None else "ok" if each.met else "MISSING" if each.needed else "absent"
            typer.echo(f"{mark:<8} {each.name:<20} {each.purpose}")
            if not each.met:
                typer.echo(f"{'':<8} {'':<20} {each.how}\n{'':<8} {'':<20} -> {each.remedy}")
        answer = {True: "this machine can run a lab", False: "this machine cannot run a lab yet"}
        typer.echo(answer.get(bool(report.ready), "") if report.ready is not None else "run as root to be certain")
    if report.ready is False:
        raise typer.Exit(1)
