"""How long does it take to compare all 6,144 switches of 131,072 NICs with their plan, and to prove what is installed?

    python bench/fabric/proof/diff.py [TARGET ...]     # sonic unless said (mark: 60 s for the comparison)

The folder holds what the switches would hand out: the exported CONFIG_DB, written again as SONiC writes it (sorted,
four spaces deep), so that no file has the bytes of the plan's; other targets' files with an empty line more. Writing
and rewriting are not counted. From the YAML file to the last difference, and from there to the verdict.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import write_all
from openmrc.fabric.model.build import build, load
from openmrc.fabric.proof.diff import compare_folder, read_folder, tables_of
from openmrc.fabric.proof.verify import verify
from openmrc.programs.fabrics.files import fork_each

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "paper-131072.yaml"


def planned() -> UsidPlan:
    """Read the fabric."""
    return usid_plan(build(load(FABRIC)))


def rewritten(path: Path) -> int:
    """Write a file again, the same in other bytes."""
    text = path.read_text()
    return path.write_text(
        json.dumps(json.loads(text), indent=4, sort_keys=True) if path.suffix == ".json" else text + "\n"
    )


def measure(target: str) -> str:
    """Return what comparing and proving took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        list(write_all(planned(), target, ExportOptions(), folder, None, fork_each))
        size = sum(fork_each(rewritten, sorted(folder.iterdir())))
        begun = time.perf_counter()
        found = list(compare_folder(planned(), folder, ExportOptions(), None, fork_each))
        compared = time.perf_counter() - begun
        differing = sum(not difference.clean for difference in found)
        begun = time.perf_counter()
        plan = planned()
        verdict = verify(
            plan, tables_of(plan.topology, list(read_folder(plan, folder, ExportOptions(), None, fork_each)))
        )
        proven = time.perf_counter() - begun
    items = sum(difference.planned for difference in found)
    return (
        f"{target:8} {len(found)} switches, {size / 1e6:.0f} MB, {items} items, {differing} differ: {compared:.1f} s; "
        f"read and proven ({verdict.proven}): {proven:.1f} s"
    )


if __name__ == "__main__":
    for wanted in sys.argv[1:] or ["sonic"]:
        print(measure(wanted), flush=True)
