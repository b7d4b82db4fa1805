"""Descriptions of a fabric, a node and a path, as plain dictionaries."""

from typing import Any

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import EvNumbers, path
from openmrc.fabric.addressing.sid_tables import entry_text, switch_tables
from openmrc.fabric.addressing.usid import UsidPlan, address_text, block_text, usid_plan
from openmrc.fabric.model.description import NOT_A_CLOS
from openmrc.fabric.model.topology import LinkTier, Topology


def fabric_facts(topology: Topology) -> dict[str, Any]:
    """Return the counts of a fabric, plane by plane."""
    facts: dict[str, Any] = {
        "name": topology.fabric.name,
        "nics": topology.nics,
        "nics_per_host": topology.nics_per_host,
        "switches": topology.nodes - topology.nics,
        "links": topology.links // 2,
    }
    if not topology.planes:
        return {**facts, "usids": f"none: {NOT_A_CLOS}"}
    facts["planes"] = [
        {
            "plane": shape.plane, "tiers": shape.tiers, "host_gbps": int(topology.link_rate[shape.host_up]) / 1e9,
            "t0": shape.t0_count, "t1": shape.t1_count, "t2": shape.t2_count, "paths": shape.paths,
        }
        for shape in topology.planes
    ]  # fmt: skip
    try:
        plan = usid_plan(topology)
    except ConfigError as error:
        return {**facts, "usids": f"refused: {error}"}
    for said, sids in zip(facts["planes"], plan.planes, strict=True):
        said["block"] = block_text(sids.block)
        said["usids"] = {name: f"{first:04x}-{first + count - 1:04x}" for name, first, count in sids.ranges()}
    return {**facts, "usid_depth": plan.depth, "ev_bits": EvNumbers(plan).bits}


def node_facts(topology: Topology, plan: UsidPlan | None, name: str) -> dict[str, Any]:
    """Return a node's links and, where there are uSIDs, a NIC's addresses or a switch's table."""
    node = topology.node_named(name)
    first, out = topology.outgoing
    facts: dict[str, Any] = {"name": topology.name(node)}
    if plan and node < topology.nics:
        planes = range(len(plan.planes))
        facts["addresses"] = {f"plane {plane}": plan.nic_address(plane, node) for plane in planes}
    facts["links"] = [link_facts(topology, int(link)) for link in out[first[node] : first[node + 1]]]
    if plan and node >= topology.nics:
        own = switch_tables(plan, node)
        facts["entries"] = [entry_text(own, row) for row in range(len(own))]
    return facts


def link_facts(topology: Topology, link: int) -> dict[str, Any]:
    return {
        "port": int(topology.link_port[link]),
        "to": topology.name(int(topology.link_destination[link])),
        "to_port": int(topology.link_port[topology.link_reverse[link]]),
        "gbps": int(topology.link_rate[link]) / 1e9,
        "delay_ns": int(topology.link_delay[link]) / 1000,
        "buffer_kb": int(topology.link_buffer[link]) / 1024,
        "kind": LinkTier(int(topology.link_tier[link])).name.lower(),
    }


def path_facts(plan: UsidPlan, source: str, destination: str, ev: int) -> dict[str, Any]:
    """Return the path that an EV names, hop by hop."""
    topology = plan.topology
    way = path(plan, topology.node_named(source), topology.node_named(destination), EvNumbers(plan).choice(ev), ev)
    block = plan.planes[way.choice.plane].block
    seen = [address_text(block, list(way.sids[max(0, at - 1) :])) for at in range(len(way.ports))]
    hops = [
        {"node": topology.name(node), "address": address, "port": port}
        for node, address, port in zip(way.nodes, seen, way.ports, strict=False)
    ]
    return {
        "ev": ev, "plane": way.choice.plane, "uplink": way.choice.uplink, "core": way.choice.core,
        "long": way.choice.long, "address": way.address, "nodes": [topology.name(node) for node in way.nodes],
        "hops": hops, "arrives_as": plan.nic_address(way.choice.plane, way.nodes[-1]),
    }  # fmt: skip
