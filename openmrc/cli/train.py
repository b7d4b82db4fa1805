"""`mrc train`: what is to be asked about training jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Training over MRC: ask why a step was slow.", no_args_is_help=True)


@app.callback()
def train() -> None:
    """Training over MRC: ask why a step was slow."""


@app.command()
def explain(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Recorders, one of each rank.")],
    step: Annotated[int | None, typer.Option("--step", min=0, help="This step; without: the slowest ones.")] = None,
    most: Annotated[int, typer.Option("-n", min=1, help="Steps of a rank, and collectives of a step.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why steps were slow: a late rank, lost packets on a plane, or the amount of data.

    FILES are written by Group.recorder.dump, and when a group fails into the folder that MRC_RECORDER_DIR names.
    """
    import msgspec

    from openmrc.train.explain import explain as explained
    from openmrc.train.explain import read, text_of

    recordings = [read(path) for path in files]
    reports = explained(recordings, step, most)
    if as_json:
        typer.echo(msgspec.json.encode(reports).decode())
        return
    for recording in recordings:
        if recording.error:
            typer.echo(f"rank {recording.rank} failed: {recording.error}")
    for report in reports:
        typer.echo("\n".join(text_of(report)))
