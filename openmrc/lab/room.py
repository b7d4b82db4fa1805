"""Estimate the resources of a lab, and refuse one that exceeds the machine before anything is created.

Memory was measured on kernel 6.18 with two processors: 80 KB per namespace, 53 KB per cable without its queues and
programs, 1.9 KB per path of a plain address (a next hop with encapsulation). Paths grow with the square of the NICs and
dominate. The limits are the memory that is left (`core.host_memory`) and user.max_net_namespaces.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from openmrc.core import host_memory
from openmrc.errors import ConfigError
from openmrc.fabric.model.shape import PlaneShape
from openmrc.lab import namespaces
from openmrc.lab.layout import Lab

_NODE_KB, _CABLE_KB, _PATH_KB = 100, 150, 2
_MOST_NAMESPACES = Path("/proc/sys/user/max_net_namespaces")


def check_room(lab: Lab) -> None:
    """Refuse a lab that needs more memory or namespaces than available."""
    nodes, free = lab.topology.nodes + 1, _namespaces_free()
    if nodes > free:
        raise ConfigError(
            f"{lab.name}: {nodes} namespaces needed, {free} left of user.max_net_namespaces; "
            "`sysctl -w user.max_net_namespaces=N` raises it"
        )
    need, available = needed_kb(lab), host_memory.available_bytes() // 1024
    if need > available:
        fits = int(lab.topology.nics * math.sqrt(available / need))
        raise ConfigError(
            f"{lab.name}: about {need / 1e6:.1f} GB are needed for {tunnel_paths(lab):,} paths between "
            f"{lab.topology.nics} NICs, {available / 1e6:.1f} GB are available; about {fits} NICs would fit"
        )


def needed_kb(lab: Lab) -> int:
    """Estimate the kernel memory of a lab."""
    return _NODE_KB * lab.topology.nodes + _CABLE_KB * len(lab.cables) + _PATH_KB * tunnel_paths(lab)


def tunnel_paths(lab: Lab) -> int:
    """Count the next hops of all NICs' routes to each other's plain addresses."""
    return sum(_paths_of(shape) for shape in lab.topology.planes)


def _paths_of(shape: PlaneShape) -> int:
    under = np.bincount(shape.t0_of(np.arange(shape.nics, dtype=np.int64)))
    near = int((under * (under - 1)).sum())  # ordered pairs under one T0 have one path
    return near + (shape.nics * (shape.nics - 1) - near) * shape.paths


def _namespaces_free() -> int:
    return int(_MOST_NAMESPACES.read_text("ascii")) - namespaces.count()
