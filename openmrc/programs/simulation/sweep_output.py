"""What the commands that run many simulations print: progress, how to resume, and the outcome."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from openmrc.programs.outcome import print_json
from openmrc.report import sweep as report
from openmrc.report.sweep import count_done
from openmrc.sim.sweep import Point

EARLIEST_ESTIMATE = 0.05  # of a point, before the time left is estimated
LONG_S = 120  # from here on the time left is in minutes


class PointsDone:
    """Prints how many points are done, the share of each that runs, and the time left for all."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._before: int | None = None  # points that were done before this call

    def __call__(self, done: int, of: int, shares: list[float]) -> None:
        """Print one line."""
        self._before = done if self._before is None else self._before
        typer.echo(f"{done} of {of} points done{_running(shares)}{self._left(done + sum(shares), of)}", err=True)

    def _left(self, done: float, of: int) -> str:
        """Estimate the time left from the points of this call; they may differ in length."""
        ran, took = done - (self._before or 0), time.monotonic() - self._begun
        if ran < EARLIEST_ESTIMATE or done >= of:
            return ""
        left = took * (of - done) / ran
        return f"; about {left:.0f} s left for all" if left < LONG_S else f"; about {left / 60:.0f} min left for all"


def _running(shares: list[float]) -> str:
    """Return what the points that run have done, each as a share of itself."""
    if not shares:
        return ""
    which = "the point that runs" if len(shares) == 1 else f"the {len(shares)} points that run"
    return f"; {', '.join(f'{share:.0%}' for share in shares)} of {which}"


def print_how_to_resume(how: str, points: list[Point], folder: Path, as_json: bool) -> None:
    """Print after an interrupt how many points are kept; the same command runs the rest.

    `how` is "interrupted" or "terminated".
    """
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
