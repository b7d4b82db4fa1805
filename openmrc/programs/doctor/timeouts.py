"""What `mrc doctor --timeouts` prints: for each failure, which timer fires first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import typer

from openmrc.programs.doctor.findings import findings
from openmrc.programs.doctor.firing_order import FailureOrder, Firing, orders
from openmrc.programs.doctor.job_settings import INFINITE, JobSettings, read_settings
from openmrc.programs.doctor.timer_table import in_words


def report_timeouts(file: Path | None, as_json: bool) -> bool:
    """Print the firing orders and contradictions of a job's settings; return whether there are none of the latter."""
    settings = read_settings(os.environ, file)
    found = findings(settings)
    if as_json:
        typer.echo(msgspec.json.encode(_document(settings, found)).decode())
    else:
        _print(settings, found)
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
    return {
        "backend": settings.backend,
        "transport": settings.transport,
        "failures": [
            {
                "failure": order.failure,
                "first": order.first.timer if order.first is not None else None,
                "firings": [_row(each) for each in order.firings],
            }
            for order in orders(settings)
        ],
        "findings": found,
    }


def _row(each: Firing) -> dict[str, Any]:
    seconds = None if each.seconds == INFINITE else each.seconds
    return {"seconds": seconds, "timer": each.timer, "effect": each.effect, "ends": each.ends}
