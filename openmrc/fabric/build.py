"""Build the arrays of a fabric from its description."""

from __future__ import annotations

from openmrc.fabric.description import Fabric
from openmrc.fabric.graph import build_graph
from openmrc.fabric.regular import build_regular
from openmrc.fabric.topology import Topology


def build(fabric: Fabric) -> Topology:
    """Turn a description into arrays."""
    return build_regular(fabric) if fabric.is_regular else build_graph(fabric)
