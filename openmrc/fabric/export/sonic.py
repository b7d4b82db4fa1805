"""SONiC: CONFIG_DB tables (SONiC HLD "Static Configuration of SRv6", sonic-srv6 YANG, bgpcfgd).

The daemon wants the locator before its SIDs, a uN inside its locator's prefix, an interface for every uA, and logs an
error for a SID without `decap_dscp_mode`. An `old` image is one whose YANG model lists uN and uDT46 only.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import msgspec

from openmrc.documents import parse_json
from openmrc.errors import ConfigError
from openmrc.fabric.export.frr import locator_name
from openmrc.fabric.export.installed import Installed, normal_prefix
from openmrc.fabric.export.view import SwitchView, sonic_port
from openmrc.fabric.tables import Action

_ACTIONS = {"uN": Action.UN, "uA": Action.UA}


def emit(switch: SwitchView) -> dict[str, str]:
    """Return CONFIG_DB of one switch."""
    locators: dict[str, Any] = {}
    sids: dict[str, Any] = {}
    routes: dict[str, Any] = {}
    neighbours: dict[str, Any] = {}
    interfaces: dict[str, Any] = {}
    for index, prefix in enumerate(switch.own):
        address = str(ipaddress.IPv6Network(prefix).network_address)
        lengths = {"block_len": "32", "node_len": "16", "func_len": "16", "arg_len": "0"}
        locators[locator_name(index)] = {"prefix": address, **lengths, "vrf": "default"}
        sids[f"{locator_name(index)}|{prefix}"] = {"action": "uN", "decap_vrf": "default", "decap_dscp_mode": "uniform"}
    for port in switch.ports:
        if port.peer:
            device = sonic_port(port.number, switch.options)
            interfaces[device] = {"ipv6_use_link_local_only": "enable"}
            interfaces[f"{device}|{port.address}/64"] = {}
            neighbours[f"{device}|{port.peer_address}"] = {"neigh": port.peer_mac, "family": "IPv6"}
    for entry in switch.entries:
        if entry.action == Action.UN:
            continue
        device, peer = sonic_port(entry.port, switch.options), switch.port(entry.port).peer_address
        if entry.action == Action.UA:
            sids[f"{locator_name(0)}|{entry.prefix}"] = _adjacency(switch, device, peer)
        else:
            routes[f"default|{entry.prefix}"] = {
                "nexthop": peer, "ifname": device, "distance": "0", "nexthop-vrf": "default", "blackhole": "false",
            }  # fmt: skip
    tables = {
        "INTERFACE": interfaces,
        "NEIGH": neighbours,
        "SRV6_MY_LOCATORS": locators,
        "SRV6_MY_SIDS": sids,
        "STATIC_ROUTE": routes,
    }
    return {"json": msgspec.json.format(msgspec.json.encode(tables), indent=2).decode() + "\n"}


def _adjacency(switch: SwitchView, device: str, peer: str) -> dict[str, str]:
    if switch.options.image == "old":
        raise ConfigError(
            f"{switch.name}: an old SONiC image knows uN and uDT46, not uA; "
            "use `usid.downlink: route` in the fabric, or a current image (--image current)"
        )
    return {"action": "uA", "decap_vrf": "default", "decap_dscp_mode": "uniform", "interface": device, "adj": peer}


def read(text: str, source: str) -> list[Installed]:
    """Read CONFIG_DB as `sonic-cfggen -d --print-data` or `config_db.json` has it."""
    tables = parse_json(text, source)
    if not isinstance(tables, dict):
        raise ConfigError(f"{source}: expected CONFIG_DB, an object of tables")
    found = []
    for key, sid in dict(tables.get("SRV6_MY_SIDS", {})).items():
        action = _ACTIONS.get(str(sid.get("action")))
        if "|" not in key or action is None:
            raise ConfigError(f"{source}: SRV6_MY_SIDS {key!r}: expected LOCATOR|PREFIX with action uN or uA")
        found.append(Installed(normal_prefix(key.split("|")[1], source), action, str(sid.get("interface", ""))))
    for key, route in dict(tables.get("STATIC_ROUTE", {})).items():
        prefix = key.split("|")[-1]
        if ":" in prefix:
            found.append(Installed(normal_prefix(prefix, source), Action.ROUTE, str(route.get("ifname", ""))))
    return found
