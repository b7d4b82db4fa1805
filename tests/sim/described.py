"""Fabrics as text, for tests that are about what a fabric says."""

from openmrc.fabric.build import build
from openmrc.fabric.description import Fabric
from openmrc.fabric.shape import check
from openmrc.fabric.topology import Topology
from openmrc.fabric.yaml_file import decode_text


def topology_of(text: str) -> Topology:
    """Return a described fabric as arrays; whatever is wrong with it is a ConfigError."""
    fabric = decode_text(f"name: described\n{text}", Fabric, "described")
    check(fabric, "described")
    return build(fabric)
