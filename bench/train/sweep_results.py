"""The sweeps of `torch_sweep` that are kept as data, and their table in docs/evidence/training.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

MOST_SHARED, MOST_SOCKETS = 1.5, 2.0  # times Gloo's, of a cell
PATH = Path(__file__).parents[1] / "results" / "series" / "torch-sweep.json"
Times = dict[str, dict[str, tuple[float, float]]]  # by collective, then by size: (us, Gloo's us)


@dataclass(frozen=True)
class Sweep:
    """One run of one way."""

    ranks: int
    shares: bool  # memory, else over sockets
    is_awake: bool  # whether the cores were kept awake
    date: str
    machine: str
    commit: str
    times: Times

    @property
    def way(self) -> str:
        """What the table calls it."""
        return f"{self.ranks} ranks, {'shared' if self.shares else 'sockets'}, {'awake' if self.is_awake else 'asleep'}"


def kept() -> list[Sweep]:
    """Return the runs that are kept, one of each way."""
    return [Sweep(**each) for each in json.loads(PATH.read_text())] if PATH.exists() else []


def keep(sweeps: Sequence[Sweep]) -> None:
    """Keep runs instead of those of the same ways, one a line."""
    ways = {each.way for each in sweeps}
    lines = ",\n".join(json.dumps(asdict(each)) for each in [*(old for old in kept() if old.way not in ways), *sweeps])
    PATH.write_text(f"[\n{lines}\n]\n")


def table(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Yield the lines of the table: in each cell time of mrc / Gloo's; a verdict stands in the last row of a way."""
    sizes = [size_text(int(size)) for size in next(iter(sweeps[0].times.values()))]
    yield f"| way | collective | {' | '.join(sizes)} | median | goals |"
    yield "|---" * (len(sizes) + 4) + "|"
    for sweep in sweeps:
        everything = []
        for kind, by_size in sweep.times.items():
            quotients = [ours / theirs for ours, theirs in by_size.values()]
            everything += quotients
            cells = " | ".join(f"{each:.2f}" for each in quotients)
            yield f"| {sweep.way} | {kind.replace('_', '-')} | {cells} | {statistics.median(quotients):.2f} | |"
        median, most = statistics.median(everything), MOST_SHARED if sweep.shares else MOST_SOCKETS
        verdict = "met" if median <= 1 and max(everything) <= most else "missed"
        blank = " |" * len(sizes)
        yield f"| {sweep.way} | all: at most {max(everything):.2f} |{blank} {median:.2f} | {verdict} |"
    yield ""
    origins = dict.fromkeys(f"{each.date}, {each.machine}, commit {each.commit or 'unknown'}" for each in sweeps)
    yield "; ".join(origins) + "."


def size_text(nbytes: int) -> str:
    """Return a size in the largest unit that it has one of."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"
