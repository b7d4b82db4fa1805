"""How long does it take to write every switch's configuration of 131,072 NICs on 8 planes, 6,144 switches?

    python bench/fabric/export.py [TARGET ...]   # sonic frr cumulus linux eos hosts; all unless said (mark: 20 s each)

From the YAML file to the last file of a folder, which is removed again. A table goes to stdout, progress to stderr.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from openmrc.apps.forks import fork_each
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.export.bulk import write_all
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import TARGETS
from openmrc.fabric.model.build import build
from openmrc.fabric.model.fabric_file import load

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "paper-131072.yaml"


def measure(target: str) -> str:
    """Export everything; return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        plan = usid_plan(build(load(FABRIC)))
        sizes = [
            size for some in write_all(plan, target, ExportOptions(), Path(folder), None, fork_each) for size in some
        ]
        took = time.perf_counter() - begun
    return f"{target:8} {len(sizes):6} files {sum(sizes) / 1e6:7.0f} MB {took:6.1f} s"


if __name__ == "__main__":
    for name in sys.argv[1:] or [*TARGETS, "hosts"]:
        print(measure(name), flush=True)
