"""`mrc doctor`: check whether this machine can run a lab."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """List what this machine lacks for `mrc lab`, with remedies; without root, some checks are inconclusive."""
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
