"""`mrc demo --train`: train with several processes while planes fail."""

import importlib.util
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from openmrc.errors import ConfigError, MrcError
from openmrc.programs.outcome import give
from openmrc.programs.training.collperf_run import free_port, killed_at_end
from openmrc.programs.training.digits import STEPS, TITLE, Outcome, Training, run
from openmrc.report.training import Course, drawing

_END_SECONDS = 90.0  # from the first rank's exit to the last; ranks that wait for a collective give up after 60
_LAST_LINES = 5  # of a rank's stderr that an error shows


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
    """Run all ranks, and return what rank 0 measured; MrcError with the last output of one that fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder, killed_at_end(processes):
        path = Path(folder) / "outcome.json"
        logs = [Path(folder) / f"rank{rank}.log" for rank in range(ranks)]
        arguments = [f"127.0.0.1:{free_port()}", str(ranks), str(planes), str(path), faults or ""]
        for rank, log in enumerate(logs):
            command = [sys.executable, "-m", "openmrc.programs.training.demo_train", str(rank), *arguments]
            with log.open("wb") as stderr:
                processes.append(subprocess.Popen(command, stderr=stderr, env=environment, process_group=0))
        codes = exit_codes(processes)
        for rank, (code, log) in enumerate(zip(codes, logs, strict=True)):
            if code:
                lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
                raise MrcError(f"rank {rank} exited with code {code}: " + "\n".join(lines))
        if None in codes:
            raise MrcError(f"rank {codes.index(None)} did not exit within {_END_SECONDS:g} s of another")
        return msgspec.json.decode(path.read_bytes(), type=Outcome)


def exit_codes(processes: Sequence[subprocess.Popen[bytes]]) -> list[int | None]:
    """Wait for all processes, after the first exit for a limited time; None for one that still runs then.

    The training itself has no limit, since it takes minutes on a slow machine; each rank limits its collectives.
    """
    deadline = math.inf
    while True:
        codes = [process.poll() for process in processes]
        if None not in codes or time.monotonic() > deadline:
            return codes
        if deadline == math.inf and any(code is not None for code in codes):
            deadline = time.monotonic() + _END_SECONDS
        time.sleep(0.05)


def _main(arguments: list[Any]) -> None:
    rank, address, ranks, planes, path, faults = arguments
    outcome = run(int(rank), int(ranks), address, int(planes), STEPS, faults or None)
    if int(rank) == 0:
        Path(path).write_bytes(msgspec.json.encode(outcome))


if __name__ == "__main__":
    _main(sys.argv[1:])
