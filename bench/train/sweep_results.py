"""The sweeps of `torch_sweep` that are kept as data, and their tables in docs/evidence/training.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

MARK, MEDIAN_MARK = 1.0, 0.8  # of Gloo's time: at every size, and in the median of all sizes
PATH = Path(__file__).parents[1] / "results" / "series" / "torch-sweep.json"
Times = dict[str, dict[str, tuple[float, float]]]  # by collective, then by size: (us, Gloo's us)


@dataclass(frozen=True)
class Sweep:
    """One run of one number of ranks."""

    ranks: int
    date: str
    machine: str
    commit: str
    times: Times


def kept() -> list[Sweep]:
    """Return the runs that are kept, oldest first."""
    return [Sweep(**each) for each in json.loads(PATH.read_text())] if PATH.exists() else []


def keep(sweep: Sweep) -> None:
    """Add a run, one a line."""
    lines = ",\n".join(json.dumps(asdict(each)) for each in [*kept(), sweep])
    PATH.write_text(f"[\n{lines}\n]\n")


def verdict(quotients: list[float]) -> str:
    """Return whether the quotients of all sizes meet both marks."""
    return "met" if max(quotients) <= MARK and statistics.median(quotients) <= MEDIAN_MARK else "missed"


def tables() -> Iterator[str]:
    """Yield the lines of a table for each number of ranks: in each cell the median of all runs, and the highest.

    A row has the runs of the machine that measured it last; a run may have measured some rows only.
    """
    for ranks in sorted({sweep.ranks for sweep in kept()}):
        sweeps = [sweep for sweep in kept() if sweep.ranks == ranks]
        rows = {kind: _runs_of(sweeps, kind) for sweep in sweeps for kind in sweep.times}
        sizes = [size_text(int(size)) for size in next(iter(sweeps[0].times.values()))]
        yield f"| {ranks} ranks | {' | '.join(sizes)} | median | |"
        yield "|---" * (len(sizes) + 3) + "|"
        for kind, used in rows.items():
            runs = {size: _quotients(used, kind, size) for size in used[-1].times[kind]}
            medians = [statistics.median(each) for each in runs.values()]
            cells = [_cell(each) for each in runs.values()]
            name = kind.replace("_", "-")
            yield f"| {name} | {' | '.join(cells)} | {statistics.median(medians):.2f} | {verdict(medians)} |"
        yield ""
        yield "; ".join(_origins(rows)) + "."
        yield ""


def _runs_of(sweeps: list[Sweep], kind: str) -> list[Sweep]:
    """Return the runs of a row: those of the machine that measured it last."""
    found = [sweep for sweep in sweeps if kind in sweep.times]
    return [sweep for sweep in found if sweep.machine == found[-1].machine]


def _origins(rows: dict[str, list[Sweep]]) -> Iterator[str]:
    """Yield a text for all rows that come from the same runs; the first of several leaves out which rows they are."""
    texts: dict[str, list[str]] = {}
    for kind, used in rows.items():
        latest = used[-1]
        text = f"{len(used)} runs of {latest.date}, {latest.machine}, commit {latest.commit or 'unknown'}"
        texts.setdefault(text, []).append(kind.replace("_", "-"))
    for number, (text, kinds) in enumerate(texts.items()):
        yield text if number == 0 else f"{', '.join(kinds)}: {text}"


def _quotients(sweeps: list[Sweep], kind: str, size: str) -> list[float]:
    found = [sweep.times[kind][size] for sweep in sweeps if size in sweep.times.get(kind, {})]
    return [ours / theirs for ours, theirs in found]


def _cell(quotients: list[float]) -> str:
    highest = max(quotients)
    text = f"{statistics.median(quotients):.2f}"
    return f"{text} (to {highest:.2f})" if highest > MARK else text


def size_text(nbytes: int) -> str:
    """Return a size in the largest unit that it has one of."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"
