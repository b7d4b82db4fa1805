"""The JSON Schema of the objects that --json prints; stored in docs/schema, kept current by a test."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from openmrc.base.schema import schema_of
from openmrc.programs.demo.story import DemoResult
from openmrc.programs.perf.report import PerfReport

PRINTED: dict[str, tuple[type, str]] = {
    "perf": (PerfReport, "What `mrc perf --json` prints."),
    "demo": (DemoResult, "What `mrc demo --json` prints."),
}


def schema(name: str) -> dict[str, Any]:
    """Return the schema of one command's object."""
    kind, title = PRINTED[name]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema_of(kind)}


def encoded(name: str) -> bytes:
    """Return the schema as the bytes of its file."""
    return msgspec.json.format(msgspec.json.encode(schema(name), order="sorted"), indent=2) + b"\n"


def main() -> None:
    """Write all schemas: `python -m openmrc.programs.schemas docs/schema`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name in PRINTED:
        (folder / f"{name}.schema.json").write_bytes(encoded(name))


if __name__ == "__main__":
    main()
