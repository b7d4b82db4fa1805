"""Read a fabric from a file, `fabric.yaml` or an htsim `.topo` file by its ending, and write a `fabric.yaml`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from openmrc.base.documents import read_text
from openmrc.base.shipped import find
from openmrc.base.yaml_file import Where, decode_placed
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.htsim import read_topo
from openmrc.fabric.model.shape import check


def load(path: str | Path) -> Fabric:
    """Read a fabric and check that its numbers add up."""
    return load_placed(path)[0]


def load_placed(path: str | Path) -> tuple[Fabric, Where]:
    """Read a fabric, and return with it a function that gives file and line of a place in it, for later errors."""
    path = find(path)
    if path.suffix == ".topo":
        return read_topo(path), lambda place: str(path)
    fabric, where = decode_placed(read_text(path), Fabric, str(path))
    check(fabric, where)
    return fabric, where


def save(fabric: Fabric, path: Path, about: str) -> None:
    """Write a fabric as YAML, what it says by default left out; `about` becomes a comment above it."""
    text = yaml.safe_dump(msgspec.to_builtins(fabric), sort_keys=False, default_flow_style=None, width=120)
    path.write_text(f"# {about}\n{text}", encoding="utf-8")
