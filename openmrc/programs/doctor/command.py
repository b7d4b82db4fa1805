"""`mrc doctor`: check whether this machine can run a lab, and which timeout of a job fires first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openmrc.errors import UsageError
from openmrc.programs.outcome import Json


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
        from openmrc.programs.doctor.timer_table import as_markdown

        typer.echo(as_markdown())
        return
    if timeouts:
        from openmrc.programs.doctor.timeouts import report_timeouts

        if not report_timeouts(file, as_json):
            raise typer.Exit(1)
        return
    _report_lab(as_json)


def _report_lab(as_json: bool) -> None:
    from openmrc.lab.doctor import examine

    report = examine()
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(report).decode())
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
