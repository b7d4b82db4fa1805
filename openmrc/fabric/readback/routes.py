"""Routes as a running system shows them: `ip -6 -j route`, FRR's `show ipv6 route json` and `.. srv6 sid json`.

FRR's forms were taken from 10.3 and 10.7.1. Routes are lists by prefix; their next hops have `seg6local` with an action
(`End` in 10.3, `uN` and `uA` in 10.7), and no lengths where another told the kernel. SIDs are by address without a
length, with an object as `context` (10.7; 10.3 has no such command).
"""

import ipaddress
from typing import Any

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.kernel import OWN
from openmrc.fabric.export.linux import BLOCK_BITS, USID_BITS
from openmrc.fabric.export.view import PortName, SwitchView, port_names
from openmrc.fabric.readback import kernel_state
from openmrc.fabric.readback.dump import LOCAL, ROUTES, SIDS, Matters, Row, Sections
from openmrc.fabric.readback.forwarding import Installing, Obstacles, in_blocks, network_of

_FRR_ACTIONS = {"End": "un", "uN": "un", "uA": "ua", "End.X": "ua", "End NEXT-CSID": "un", "End.X NEXT-CSID": "ua"}

_READ = frozenset((  # what may be in a planned route; all else may send its packets elsewhere, or limit them
    "dst", "type", "gateway", "dev", "protocol", "scope", "metric", "flags", "pref", "nexthops",
    "encap", "action", "nh6", "flavors", "lblen", "nflen", "packets", "bytes", "errors",
))  # fmt: skip
_HARMLESS_FLAGS = ("onlink", "offload", "rt_offload", "pervasive")
_LINK_LOCAL = ipaddress.IPv6Network("fe80::/10")
_UNFLAVOURED = f" without next-csid {BLOCK_BITS}+{USID_BITS}"
_PLAIN_END = f"seg6local End{_UNFLAVOURED}"  # forwards only what has a segment list, and drops the rest


def planned(switch: SwitchView, port_name: PortName) -> Sections:
    """Return the routes that a switch should have."""
    names = port_names(switch.layout, port_name)
    rows: dict[str, Any] = {}
    for prefix, action, port in switch.entries:
        rows[prefix] = {"action": action.name.lower()}
        if action is not Action.UN:
            rows[prefix]["interface"] = names[port]
        if action is Action.ROUTE:
            rows[prefix]["via"] = switch.peer_addresses[port]
    sids = {prefix: row for prefix, row in rows.items() if row["action"] != "route"}
    rows[switch.block] = {"action": "blackhole"}
    return {ROUTES: rows, SIDS: sids}


def of_kernel(routes: Any, source: str) -> Sections:
    """Read the output of `ip -6 -j route show`."""
    if not isinstance(routes, list):
        raise ConfigError(f"{source}: expected the list that `ip -6 -j route show` prints")
    rows: dict[str, Any] = {}
    for route in routes:
        if isinstance(route, dict) and "dst" in route and route["dst"] != "default":
            _note(rows, str(network_of(str(route["dst"]), source)), _of_kernel(route))
    return {ROUTES: rows}


def of_local(routes: Any, source: str) -> Sections:
    """Read `ip -6 -j route show table local`, which the kernel looks up first."""
    rows = of_kernel(routes, source)[ROUTES]
    return {LOCAL: {prefix: row for prefix, row in rows.items() if row["action"] != "multicast"}}


def _of_kernel(route: dict[str, Any]) -> Row:
    device = str(route.get("dev", ""))
    if "type" in route and route["type"] != "unicast":
        return {"action": str(route["type"])}
    # A route through a nexthop object, as FRR makes them, is shown with what the object says, else without a device.
    read = _READ | {"nhid"} if device else _READ
    unread = [f"{key} {value}" for key, value in route.items() if key not in read]
    unread += [str(flag) for flag in route.get("flags", ()) if flag not in _HARMLESS_FLAGS]
    if unread or route.get("encap", "seg6local") != "seg6local":
        return {"action": f"route with {', '.join(unread) or route['encap']}", "interface": device}
    if route.get("encap") != "seg6local":
        if "nexthops" in route:
            return {"action": "several next hops"}
        hop = {"via": str(route["gateway"])} if "gateway" in route else {}
        return {"action": "route", "interface": device, **hop}
    flavoured = "next-csid" in route.get("flavors", [])
    if not flavoured or (route.get("lblen", BLOCK_BITS), route.get("nflen", USID_BITS)) != (BLOCK_BITS, USID_BITS):
        return {"action": f"seg6local {route.get('action')}{_UNFLAVOURED}", "interface": device}
    if route.get("action") == "End":
        return {"action": "un", "on": device}
    return {"action": "ua", "interface": device, **({"nh6": str(route["nh6"])} if "nh6" in route else {})}


def of_frr(dump: Any, source: str) -> Sections:
    """Read FRR's JSON of routes or SIDs, whichever it is."""
    if not isinstance(dump, dict):
        raise ConfigError(f"{source}: expected the object that FRR prints")
    rows: dict[str, Any] = {}
    sids: dict[str, Any] = {}
    for key, value in dump.items():
        if isinstance(value, dict) and "behavior" in value:
            prefix = key if "/" in key else f"{key}/{BLOCK_BITS + USID_BITS}"  # a SID: block and one uSID
            _note(sids, str(network_of(prefix, source)), _of_sid(value))
        elif isinstance(value, list):
            for route in value:
                if isinstance(route, dict) and "protocol" in route:
                    _note(rows, str(network_of(key, source)), _of_route(route))
    return {**({SIDS: sids} if sids else {}), **({} if sids and not rows else {ROUTES: rows})}


def _of_sid(sid: dict[str, Any]) -> Row:
    behavior, context = str(sid["behavior"]), sid.get("context")
    row = {"action": _FRR_ACTIONS.get(behavior, behavior)}
    if isinstance(context, dict) and "interfaceName" in context:
        row["interface"] = str(context["interfaceName"])
    return row


def _of_route(route: dict[str, Any]) -> Row:
    hops = [hop for hop in route.get("nexthops", []) if isinstance(hop, dict)]
    if route.get("protocol") not in ("static", "kernel") or len(hops) != 1:
        return {"action": f"{route.get('protocol')}, {len(hops)} next hops"}
    (hop,) = hops
    if not (route.get("installed") and hop.get("active")):
        return {"action": "not installed"}
    if "blackhole" in hop or hop.get("unreachable") or hop.get("reject"):
        return {"action": "blackhole"}
    interface = {"interface": str(hop.get("interfaceName", ""))}
    local = hop.get("seg6local")
    if not isinstance(local, dict):
        return {"action": "route", **interface, "via": str(hop.get("ip", ""))}
    lengths = local.get("sidStructure", {})
    taken = int(lengths.get("nodeLen", 0)) + int(lengths.get("funcLen", 0))
    unread = route.get("protocol") == "kernel" and not taken  # FRR does not read the lengths from the kernel
    if not unread and (lengths.get("blockLen"), taken) != (BLOCK_BITS, USID_BITS):
        return {"action": f"seg6local {local.get('action')} {lengths.get('blockLen')}+{taken}"}
    action = _FRR_ACTIONS.get(str(local.get("action")), str(local.get("action")))
    return {"action": action, "on": interface["interface"]} if action == "un" else {"action": action, **interface}


def _note(rows: dict[str, Any], prefix: str, row: Row) -> None:
    """Record a route; of several for one prefix, the valid one is undefined."""
    before = rows.setdefault(prefix, row)
    if before != row:
        rows[prefix] = {"action": f"{before['action']} and {row['action']}"}


def comparable(found: Sections, switch: SwitchView, port_name: PortName) -> Sections:
    """Return routes in comparable form: the port of a switch's own uSID is ignored."""
    ports = set(port_names(switch.layout, port_name).values())
    shown = {section: {prefix: _shown(row, ports) for prefix, row in rows.items()} for section, rows in found.items()}
    if _ends_block(found, switch):
        shown[ROUTES][switch.block] = {"action": "blackhole"}
    return shown


def _ends_block(found: Sections, switch: SwitchView) -> bool:
    """Whether nothing leaves by the block itself; counting such packets first, as a lab does, is no difference."""
    action = found.get(ROUTES, {}).get(switch.block, {}).get("action")
    return action in ("blackhole", f"{_PLAIN_END} and blackhole")


def _shown(row: Row, ports: set[str]) -> Row:
    shown = {key: value for key, value in row.items() if key not in ("on", "nh6")}
    return {**shown, "action": f"un, but on {row['on']} instead of {OWN}"} if row.get("on") in ports else shown


def matters(switch: SwitchView) -> Matters:
    """Return the function that decides whether an unplanned route counts: routes of the fabric's blocks do."""
    touches, own = in_blocks(switch), f"{switch.loopback}/128"
    return lambda section, prefix, value: prefix != own and prefix not in switch.others and touches(prefix)


def install(installing: Installing, found: Sections) -> None:
    """Add the entries that a running system shows; ports whose state was not read are assumed to answer."""
    switch = installing.switch
    obstructed = installing.obstruct(kernel_state.obstacles(switch, installing.ports, found))
    obstructed = installing.obstruct(_obstacles(switch, found)) or obstructed
    touches = in_blocks(switch)
    for prefix, row in found.get(LOCAL, {}).items():
        if touches(prefix):
            installing.leads_elsewhere(prefix, f"{row['action']} in the local table")
    for prefix, row in {**found.get(SIDS, {}), **found.get(ROUTES, {})}.items():
        if touches(prefix) and not (prefix == switch.block and _ends_block(found, switch)):
            action = row["action"]
            if action == "un":
                on = row.get("on")
                installing.own(prefix, obstructed or (f"it is attached to {on}" if on in installing.ports else ""))
            elif action in ("route", "ua"):
                known = Action.ROUTE if action == "route" else Action.UA
                why = _towards(found.get(ROUTES, {}), row) if "nh6" in row else ""
                installing.out(prefix, known, row.get("interface", ""), row.get("via", row.get("nh6")), why)
            else:
                installing.leads_elsewhere(prefix, action)


def _obstacles(switch: SwitchView, found: Sections) -> Obstacles:
    """Yield what comes before every route of the fabric: the local table, and ways to neighbours' addresses."""
    touches = in_blocks(switch)
    for prefix, row in found.get(LOCAL, {}).items():
        if touches(prefix) and ipaddress.IPv6Network(prefix).prefixlen <= BLOCK_BITS + USID_BITS:
            yield None, f"the local table comes before the routes: {row['action']} {prefix}"
    for prefix, row in found.get(ROUTES, {}).items():
        kinds = set(row["action"].split(" and "))
        if ipaddress.IPv6Network(prefix).overlaps(_LINK_LOCAL) and kinds != {"route"} and prefix != "::/0":
            yield None, f"link-local addresses lead elsewhere: {row['action']} {prefix}"


def _towards(routes: dict[str, Any], row: Row) -> str:
    """Return why End.X does not reach the address that it names, or an empty string."""
    there = routes.get(f"{row['nh6']}/128")
    planned = {"action": "route", "interface": row["interface"]}
    return "" if there == planned else f"no route to {row['nh6']} at {row['interface']}"
