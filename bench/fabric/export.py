"""How long does it take to write every switch's configuration of 131,072 NICs on 8 planes, 6,144 switches?

    python -m bench.fabric.export [TARGET ...]   # sonic frr cumulus linux eos hosts; all unless said (mark: 20 s each)
    python -m bench.fabric.export --ratio [TARGET ...]   # each in turns with SONiC: holds on a busy machine too

From the YAML file to the last file of a folder, which is removed again. With --ratio each target and SONiC are exported
twice in turns, for one plane of the eight; the ratios are those of the shorter times, of the processors (both
processes) and of the clock.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import TARGETS, write_all
from openmrc.fabric.model.build import build, load
from openmrc.programs.fabrics.files import fork_each

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "paper-131072.yaml"


@dataclass(frozen=True)
class Took:
    """One export: files, bytes, seconds of the clock and of the processors."""

    files: int
    size: int
    wall: float
    processor: float

    def line(self, target: str) -> str:
        return f"{target:8} {self.files:6} files {self.size / 1e6:7.0f} MB {self.wall:6.1f} s"


def measure(target: str, planes: int = 8) -> Took:
    """Export every switch of some planes."""
    fabric = load(FABRIC)
    with tempfile.TemporaryDirectory() as folder:
        begun, used = time.perf_counter(), processor_s()
        plan = usid_plan(build(replace(fabric, planes=tuple(replace(each, count=planes) for each in fabric.planes))))
        sizes = [
            size for some in write_all(plan, target, ExportOptions(), Path(folder), None, fork_each) for size in some
        ]
        return Took(len(sizes), sum(sizes), time.perf_counter() - begun, processor_s() - used)


def processor_s() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def compare(target: str) -> str:
    """Return the ratios of a target to SONiC."""
    found: dict[str, list[Took]] = {"sonic": [], target: []}
    for _ in range(2):
        for name, runs in found.items():
            runs.append(measure(name, planes=1))
            print(runs[-1].line(name), file=sys.stderr, flush=True)
    one, other = found[target], found["sonic"]
    processor = min(each.processor for each in one) / min(each.processor for each in other)
    wall = min(each.wall for each in one) / min(each.wall for each in other)
    size = one[0].size / other[0].size
    return f"{target:8} / sonic: bytes {size:.2f}, processor time {processor:.2f}, clock {wall:.2f}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ratio"]:
        for name in sys.argv[2:] or [each for each in TARGETS if each != "sonic"]:
            print(compare(name), flush=True)
    else:
        for name in sys.argv[1:] or [*TARGETS, "hosts"]:
            print(measure(name).line(name), flush=True)
