"""`mrc train`: analyse training jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openmrc.programs.outcome import Json, print_json
from openmrc.train.execution import torch_trace
from openmrc.train.execution.explain import RunReport, files_of, overview, overview_text, read, text_of
from openmrc.train.execution.explain import explain as explained


def explain(
    files: Annotated[list[Path], typer.Argument(exists=True, help="Recorder files, one per rank, or their folder.")],
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="Step to explain (default: the slowest steps).")
    ] = None,
    most: Annotated[
        int, typer.Option("-n", min=1, help="Maximum number of steps per rank and of collectives per step.")
    ] = 3,
    torch: Annotated[
        Path | None, typer.Option("--torch", help="Write them for torch's flight recorder into this folder instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain why steps were slow: a late rank, lost packets on a plane, or the amount of data.

    FILES are written by Group.recorder.dump and, when a group fails, to the folder named by MRC_RECORDER_DIR; with
    MRC_RECORDER=always also when it ends, and on SIGUSR1. What planes did is listed first.
    """
    recordings = [read(path) for path in files_of(files)]
    if torch is not None:
        torch_trace.write(recordings, torch)
        typer.echo(f"python -m torch.distributed.flight_recorder.fr_trace {torch} --prefix rank_")
        return
    report = RunReport([overview(each) for each in recordings], explained(recordings, step, most))
    if as_json:
        print_json(report)
        return
    lines = [line for each in report.ranks for line in overview_text(each)]
    lines += [line for each in report.steps for line in text_of(each)]
    typer.echo("\n".join(map(_plain, lines)))


def _plain(line: str) -> str:
    """Return a line of a recording, which may be anybody's, without what a terminal would obey."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in line)
