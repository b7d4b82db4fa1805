"""The JSON Schemas of user files and of the objects that --json prints; stored in schema/, kept current by a test."""

from __future__ import annotations

import argparse
from pathlib import Path

from openmrc.base.documents import schema_text
from openmrc.ctl.profiles.ev_document import EvFile
from openmrc.fabric.model.description import Fabric
from openmrc.programs.demo.result import DemoResult
from openmrc.programs.perf.report import PerfReport
from openmrc.sim.questions import Question
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.sweep import Sweep

SCHEMAS: dict[str, type] = {
    "scenario": Scenario,
    "sweep": Sweep,
    "question": Question,
    "fabric": Fabric,
    "ev": EvFile,
    "perf": PerfReport,
    "demo": DemoResult,
}


def main() -> None:
    """Write all schemas: `python -m spec.schemas schema`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, described in SCHEMAS.items():
        (folder / f"{name}.schema.json").write_text(schema_text(described), "utf-8")


if __name__ == "__main__":
    main()
