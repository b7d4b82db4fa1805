"""Fabrics as text, for tests that are about what a fabric says."""

from openmrc.base.yaml_file import decode_text
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.shape import check
from openmrc.fabric.model.topology import Topology


def topology_of(text: str) -> Topology:
    """Return a described fabric as arrays; whatever is wrong with it is a ConfigError."""
    fabric = decode_text(f"name: described\n{text}", Fabric, "described")
    check(fabric, "described")
    return build(fabric)
