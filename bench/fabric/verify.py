"""How long does the proof take, and does it agree with trying every path?

    python -m bench.fabric.verify                the published fabric: 131,072 NICs, 8 planes (mark: < 10 s, < 1 GB)
    python -m bench.fabric.verify --exhaustive   1,024 NICs, 8 planes: 260 million packets, one on every path

Prints one JSON object. Wall time starts before the fabric file is read and includes topology, tables and proof.
"""

import argparse
import json
import time
from pathlib import Path

from harness.every_path import check_all
from openmrc.core.host_memory import peak_bytes
from openmrc.fabric.addressing.sid_tables import build_tables
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.build import build, load
from openmrc.fabric.proof.verify import verify

FABRICS = Path(__file__).parents[2] / "scenarios" / "fabrics"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exhaustive", action="store_true")
    exhaustive = parser.parse_args().exhaustive
    name = "gpus-1024" if exhaustive else "paper-131072"
    start = time.perf_counter()
    plan = usid_plan(build(load(FABRICS / f"{name}.yaml")))
    verdict = verify(plan)
    said = {
        "fabric": name,
        "pairs": verdict.pairs,
        "paths": verdict.paths,
        "delivered": verdict.delivered,
        "proven": verdict.proven,
        "entries": verdict.entries,
        "wall_s": round(time.perf_counter() - start, 2),
    }
    if exhaustive:
        start = time.perf_counter()
        count = check_all(plan, build_tables(plan))
        said["exhaustive_delivered"] = count.delivered
        said["exhaustive_agrees"] = all(getattr(count, key) == said[key] for key in ("pairs", "paths", "delivered"))
        said["exhaustive_wall_s"] = round(time.perf_counter() - start, 1)
    said["peak_rss_mb"] = peak_bytes() // 1_000_000
    print(json.dumps(said))


if __name__ == "__main__":
    main()
