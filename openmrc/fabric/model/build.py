"""Build the arrays of a fabric from its description."""

from __future__ import annotations

from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.graph import build_graph
from openmrc.fabric.model.regular import build_regular
from openmrc.fabric.model.topology import Topology


def build(fabric: Fabric) -> Topology:
    """Turn a description into arrays."""
    return build_regular(fabric) if fabric.is_regular else build_graph(fabric)
