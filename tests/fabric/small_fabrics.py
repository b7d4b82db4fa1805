"""Fabrics small enough to try everything, each with a feature of its own."""

from openmrc.base.yaml_file import decode_text
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.shape import check

SMALL = {
    "two-tier": """
name: two-tier
hosts: {count: 12}
planes:
  - {count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}
""",
    "bundles": """
name: bundles
hosts: {count: 11}
planes:
  - {host_gbps: 100, t0: {down: 4, up: 6, bundle: 2}, t1: {}}
""",
    "bundled-twice": """
name: bundled-twice
hosts: {count: 8}
planes:
  - {host_gbps: 100, t0: {down: 4, up: 6, bundle: 3}, t1: {}}
""",
    "three-tier": """
name: three-tier
hosts: {count: 20}
planes:
  - {host_gbps: 100, t0: {down: 3, up: 4, bundle: 2}, t1: {down: 4, up: 6, bundle: 3}, t2: {}}
""",
    "two-sites": """
name: two-sites
hosts: {count: 12}
planes:
  - {count: 2, host_gbps: 100, t0: {down: 3, up: 2}, t1: {}}
sites: {links: 3, gbps: 100, link_us: 5}
""",
    "one-switch-a-site": """
name: one-switch-a-site
hosts: {count: 8}
planes:
  - {count: 2, host_gbps: 100, t0: {down: 4}}
sites: {links: 2, gbps: 100, link_us: 5}
""",
    "unlike-planes": """
name: unlike-planes
hosts: {count: 8, nics: 2, attach: rail}
planes:
  - {host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}
  - {host_gbps: 50, t0: {down: 8, up: 2}, t1: {}}
""",
    "shifting-downlinks": """
name: shifting-downlinks
hosts: {count: 9}
planes:
  - {host_gbps: 100, t0: {down: 3, up: 2}, t1: {}}
usid: {downlink: ua}
""",
    "one-block": """
name: one-block
hosts: {count: 12}
planes:
  - {count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}
usid: {shared: true}
""",
}


def fabric(name: str) -> Fabric:
    described = decode_text(SMALL[name], Fabric, name)
    check(described, name)
    return described


def plan(name: str) -> UsidPlan:
    return usid_plan(build(fabric(name)))
