"""CONFIG_DB read back, as `sonic-cfggen -d --print-data` or `config_db.json` has it."""

from typing import Any

import msgspec

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.frr import locator_name
from openmrc.fabric.export.sonic import DECAPSULATION, locator_row, port_name, route_row
from openmrc.fabric.export.view import LAST_DISTANCE, PortName, SwitchView, port_names
from openmrc.fabric.readback import bindings, lines
from openmrc.fabric.readback.dump import Matters, Row, Sections
from openmrc.fabric.readback.forwarding import Installing, in_blocks, mtu_too_small
from openmrc.fabric.readback.seen import SEVERAL, SeenSwitch, see, usual_address

_BY_PREFIX = ("STATIC_ROUTE", "SRV6_MY_SIDS")
_BY_PORT = ("INTERFACE", "NEIGH", "VLAN_MEMBER", "PORTCHANNEL_MEMBER", "QUEUE", "BUFFER_QUEUE", "PORT_QOS_MAP")
_WHOLE = ("SRV6_MY_LOCATORS", "SWITCH_TRIMMING")


def read(text: str, source: str) -> Sections:
    """Read CONFIG_DB; keys with addresses are normalised."""
    try:
        tables = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{source}: not JSON: {error}") from None
    if not isinstance(tables, dict):
        raise ConfigError(f"{source}: expected CONFIG_DB, an object of tables")
    for name, rows in tables.items():
        if not isinstance(rows, dict):
            raise ConfigError(f"{source}: {name}: expected an object of rows")
        for key, row in rows.items():
            if not isinstance(row, dict):
                raise ConfigError(f"{source}: {name} {key}: expected an object of fields")
    return tables


def of_frr(switch: SwitchView, text: str) -> Sections:
    """Read the frr.conf of a SONiC that leaves routes and SIDs to FRR (`docker_routing_config_mode` split).

    The rows are those that CONFIG_DB would have; a locator has the name that the plan gives it.
    """
    seen = SeenSwitch(switch.name)
    see(seen, "frr", lines.blocks(text), text)
    names = port_names(switch.layout, port_name)
    behind = {address: names[number] for number, address in switch.peer_addresses.items()}
    locators = {prefix: locator_name(index) for index, prefix in enumerate(switch.own)}
    found: Sections = {"STATIC_ROUTE": {}, "SRV6_MY_SIDS": {}, "SRV6_MY_LOCATORS": {}}
    for prefix, action, interface, via, other in seen.entries:
        if other == "blackhole":
            found["STATIC_ROUTE"][f"default|{prefix}"] = {"blackhole": "true", "distance": str(LAST_DISTANCE)}
        elif action is Action.ROUTE or other == SEVERAL:
            ways = {"nexthop": via or other, "ifname": interface or behind.get(via, other)}
            found["STATIC_ROUTE"][f"default|{prefix}"] = route_row(ways)
        else:
            kind = {Action.UN: "uN", Action.UA: "uA"}.get(action, other) if action else other
            ways = {"interface": interface, "adj": via} if action is Action.UA else {}
            locator = locators.get(prefix, locator_name(0))
            found["SRV6_MY_SIDS"][f"{locator}|{prefix}"] = {"action": kind, **DECAPSULATION, **ways}
    for prefix in seen.locators:
        found["SRV6_MY_LOCATORS"][locators.get(prefix, prefix)] = locator_row(prefix)
    return {table: rows for table, rows in found.items() if rows}


def normal(found: Sections, planned: Sections) -> Sections:
    """Return tables with normalised addresses and numbers as strings; tables equal to the plan are unchanged."""
    return {
        name: rows if rows == planned.get(name) else {_key(key): _fields(row) for key, row in rows.items()}
        for name, rows in found.items()
    }


def _key(key: str) -> str:
    return "|".join(_usual(part) for part in key.split("|")) if ":" in key else key


def _fields(row: Any) -> Row:
    return {
        key: _usual(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in row.items()
    }


def _usual(text: str) -> str:
    return usual_address(text) or text.lower() if text.count(":") > 1 else text


def matters(switch: SwitchView, port_name: PortName) -> Matters:
    """Return the function that decides whether an unplanned row affects forwarding in the fabric."""
    touches, ports = in_blocks(switch), set(port_names(switch.layout, port_name).values())

    def rule(table: str, key: str, row: Any) -> bool:
        parts = key.split("|")
        if table == "ACL_TABLE":
            return any(port in str(row.get("ports", "")) for port in ports)
        if table in _BY_PREFIX:
            return parts[-1] not in switch.others and touches(parts[-1])
        return table in _WHOLE or (table in _BY_PORT and any(part in ports for part in parts))

    return rule


def install(installing: Installing, tables: Sections) -> None:
    """Add the entries that CONFIG_DB installs."""
    switch, touches = installing.switch, in_blocks(installing.switch)
    _ports(installing, tables)
    for key, row in tables.get("SRV6_MY_SIDS", {}).items():
        locator, _, prefix = key.partition("|")
        why = _locator(tables.get("SRV6_MY_LOCATORS", {}).get(locator), prefix, str(row.get("action")))
        if row.get("action") == "uN":
            installing.own(prefix, why)
        else:
            device, via = str(row.get("interface", "")), str(row.get("adj", ""))
            installing.out(prefix, Action.UA, device, via, why or _neighbour(tables, installing, device, via))
    for key, row in tables.get("STATIC_ROUTE", {}).items():
        prefix = key.split("|")[-1]
        if row.get("blackhole") == "true" and prefix == switch.block:
            continue
        if ":" in prefix and touches(prefix):
            device, via = str(row.get("ifname", "")), str(row.get("nexthop", ""))
            why = _route(key, row) or _neighbour(tables, installing, device, via)
            installing.out(prefix, Action.ROUTE, device, via, why)


def _ports(installing: Installing, tables: Sections) -> None:
    """Record ports that are down or belong to something else, and ports with another address than planned."""
    switch = installing.switch
    planned = {port_name(port): port for port in switch.layout.ports}
    mac = tables.get("DEVICE_METADATA", {}).get("localhost", {}).get("mac")
    if mac != switch.mac:
        installing.found.silent.update(switch.facing)
    # What a switch that exists does not say of FEC is its platform's choice.
    rows, interfaces = tables.get("PORT", {}), tables.get("INTERFACE", {})
    for name, port in planned.items():
        slot = port.slot
        row, expected = rows.get(name, {}), (str(slot.speed * 1000), "rs" if slot.fec else "none", "up")
        if (row.get("speed"), row.get("fec", expected[1] if port.name else None), row.get("admin_status")) != expected:
            installing.down(port.number, f"port {name} is not at {slot.speed}G and up")
        elif not port.name and len(str(row.get("lanes", "")).split(",")) != slot.lanes:
            installing.down(port.number, f"port {name} has not {slot.lanes} lanes")
        elif mtu_too_small(row.get("mtu", "")):
            installing.down(port.number, f"port {name}: MTU {row.get('mtu')}")
        elif port.is_link_local and interfaces.get(name, {}).get("ipv6_use_link_local_only") != "enable":
            installing.down(port.number, f"interface {name} has no link-local address")
        elif not port.is_link_local and f"{name}|{port.address}" not in interfaces:
            installing.down(port.number, f"interface {name} has not the address {port.address}")
    for name, why in bindings.of_sonic(tables, in_blocks(switch)):
        if name in planned:
            installing.down(planned[name].number, f"port {name} {why}")


def _locator(locator: Row | None, prefix: str, action: str) -> str:
    if locator is None:
        return "its locator is missing"
    lengths = tuple(locator.get(key) for key in ("block_len", "node_len", "func_len", "arg_len"))
    if lengths != ("32", "16", "16", "0"):
        return f"its locator has lengths {lengths}"
    if action == "uN" and f"{locator.get('prefix')}/48" != prefix:
        return f"it is not in its locator {locator.get('prefix')}"
    return "" if action in ("uN", "uA") else f"action {action}"


def _route(key: str, row: Row) -> str:
    if row.get("blackhole", "false") != "false":
        return "blackhole"
    if key.split("|")[0] not in ("default", key) or row.get("nexthop-vrf", "default") != "default":
        return "another VRF"
    return ""


def _neighbour(tables: Sections, installing: Installing, device: str, via: str) -> str:
    """A static neighbour must be the actual one; otherwise neighbour discovery finds it."""
    pinned = tables.get("NEIGH", {}).get(f"{device}|{via}")
    port = installing.ports.get(device)
    if pinned is None or port is None or pinned.get("neigh") == installing.switch.peer_mac(port):
        return ""
    return f"its neighbour is pinned to {pinned.get('neigh')}"
