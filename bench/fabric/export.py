"""How long does it take to write every switch's configuration of 131,072 NICs on 8 planes, 6,144 switches?

    python -m bench.fabric.export [TARGET ...]      # sonic frr cumulus linux eos; all unless said

From the YAML file to the last file of a folder, which is removed again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from openmrc.fabric.build import build
from openmrc.fabric.export.archive import write
from openmrc.fabric.export.targets import TARGETS, export
from openmrc.fabric.export.view import Options
from openmrc.fabric.fabric_file import load
from openmrc.fabric.usid import usid_plan

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "paper-131072.yaml"


def measure(target: str) -> str:
    """Export everything; return what it took."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        sizes = list(write(export(usid_plan(build(load(FABRIC))), target, Options()), Path(folder)))
        took = time.perf_counter() - begun
    return f"{target}: {len(sizes)} files, {sum(sizes) / 1e6:.0f} MB, {took:.1f} s"


if __name__ == "__main__":
    for name in sys.argv[1:] or TARGETS:
        print(measure(name))
