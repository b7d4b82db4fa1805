"""`mrc demo --train`: train with several processes while planes fail."""

import importlib.util
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import msgspec
import typer

from openmrc.errors import ConfigError, MrcError
from openmrc.programs.outcome import give
from openmrc.programs.training.collperf_run import free_port, other_ranks
from openmrc.programs.training.digits import STEPS, TITLE, Outcome, Training, run
from openmrc.report.training import Course, drawing


def train(ranks: int, planes: int, faults: str | None, out: Path, as_json: bool) -> None:
    """Train twice, plot the second run, and compare the losses bit for bit; exit with code 1 if they differ."""
    check_installed()
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "training.svg"
    typer.echo(f"{ranks} processes train over {planes} planes: first without faults, then with faults ...", err=True)
    outcome = _outcome(ranks, planes, faults)
    picture.write_text(drawing(_course(outcome, ranks, planes)), "utf-8")
    is_same = outcome.disturbed.loss == outcome.undisturbed.loss
    give(
        {"ok": is_same, "picture": str(picture), **msgspec.to_builtins(outcome)},
        as_json,
        lambda: _report(outcome, picture, is_same),
    )
    if not is_same:
        raise typer.Exit(1)


def check_installed() -> None:
    """Raise ConfigError if a package that the training needs is missing."""
    missing = [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"--train needs {' and '.join(missing)}: pip install torch scikit-learn")


def _course(outcome: Outcome, ranks: int, planes: int) -> Course:
    training = outcome.disturbed
    return Course(
        title=f"{TITLE}, {ranks} ranks over {planes} planes",
        at=training.at,
        loss=training.loss,
        seconds=training.seconds,
        planes=planes,
        faults=outcome.faults,
    )


def _report(outcome: Outcome, picture: Path, is_same: bool) -> None:
    typer.echo(f"faults: {outcome.faults}")
    typer.echo(_line("undisturbed", outcome.undisturbed))
    typer.echo(_line("with faults", outcome.disturbed))
    typer.echo(f"chart: {picture}")
    steps = len(outcome.disturbed.loss)
    if is_same:
        typer.echo(f"OK {steps} steps, the loss curves are identical, bit for bit")
    else:
        pairs = enumerate(zip(outcome.undisturbed.loss, outcome.disturbed.loss, strict=True))
        first = next(step for step, (one, other) in pairs if one != other)
        typer.echo(f"FAILED: the loss curves differ from step {first} on")


def _line(name: str, training: Training) -> str:
    usual, slowest = statistics.median(training.seconds) * 1e3, max(training.seconds) * 1e3
    return (
        f"{name}: loss {training.loss[0]:.6f} to {training.loss[-1]:.9f}, {training.right:.2%} of the digits correct, "
        f"{training.at[-1]:.1f} s, steps of {usual:.1f} ms (median) to {slowest:.1f} ms, "
        f"{training.retransmitted:,} packets retransmitted"
    )


def _outcome(ranks: int, planes: int, faults: str | None) -> Outcome:
    """Train as rank 0, the other ranks in processes of their own; return what was measured here."""
    os.environ["OMP_NUM_THREADS"] = "1"  # torch is imported later
    address = f"127.0.0.1:{free_port()}"
    with other_ranks([sys.executable, "-m", __name__, address, str(ranks), str(planes), faults or ""], ranks):
        try:
            return run(0, ranks, address, planes, STEPS, faults)
        except RuntimeError as error:  # of torch, or of the group
            first_line = str(error).partition("\n")[0]  # torch adds where it was raised
            raise MrcError(f"rank 0: {first_line}") from error


def _main(arguments: list[Any]) -> None:
    address, ranks, planes, faults, rank = arguments
    try:
        run(int(rank), int(ranks), address, int(planes), STEPS, faults or None)
    except RuntimeError as error:
        sys.exit(f"mrc demo --train, rank {rank}: {error}")


if __name__ == "__main__":
    _main(sys.argv[1:])
