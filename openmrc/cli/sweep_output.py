"""What the commands that run many simulations print: progress, how to resume, and the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from openmrc.cli.outcome import print_json

if TYPE_CHECKING:
    from openmrc.sim.sweep import Point


def print_points_done(done: int, of: int, shares: list[float]) -> None:
    """Print how many points are done, and the shares done of those that run."""
    running = f"; running: {', '.join(f'{share:.0%}' for share in shares)}" if shares else ""
    typer.echo(f"{done} of {of} points{running}", err=True)


def print_how_to_resume(how: str, points: list[Point], folder: Path, as_json: bool) -> None:
    """Print after an interrupt how many points are kept; the same command runs the rest.

    `how` is "interrupted" or "terminated".
    """
    from openmrc.report.sweep import count_done

    done = count_done(points, folder)
    typer.echo(
        f"mrc: {how}: {done} of {len(points)} points are done and kept in {folder}; "
        f"the same command again runs only the other {len(points) - done}",
        err=True,
    )
    if as_json:
        print_json({"points": len(points), "done": done, "interrupted": True, "out": str(folder)})


def outcome(points: list[Point], results: list[dict[str, Any]], folder: Path, warnings: list[str]) -> dict[str, Any]:
    """Return the object that `--json` prints for a sweep: points, and how many were unfinished or refused, and why."""
    from openmrc.report import sweep as report

    refused = report.refusals(results)
    return {
        "points": len(points),
        "unfinished": sum(
            each["summary"]["finished"] < each["summary"]["flows"] for each in results if "summary" in each
        ),
        "refused": sum(refused.values()),
        "refused_because": refused,
        "out": str(folder),
        "warnings": warnings,
    }
