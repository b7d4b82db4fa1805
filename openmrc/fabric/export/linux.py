"""Linux: an `ip -6 -batch` file, the sysctls it needs, and the same routes as netlink attributes.

uN is seg6local End with the NEXT-C-SID flavour (RFC 9800; kernel 6.1 and up). The route hangs on the first port that
has a cable: setting that port administratively down takes the route away, losing its carrier does not. A shifting
downlink is End.X towards the NIC's own address, which needs a route and a neighbour of its own.
Attribute numbers: linux/seg6_local.h, linux/lwtunnel.h, linux/rtnetlink.h.
"""

from __future__ import annotations

import json
from typing import Any

from openmrc.documents import parse_json
from openmrc.errors import ConfigError
from openmrc.fabric.export.installed import Installed, normal_prefix
from openmrc.fabric.export.view import Entry, PortName, SwitchView, linux_port
from openmrc.fabric.tables import Action

BLOCK_BITS, USID_BITS = 32, 16
_FLAVOUR = f"flavors next-csid lblen {BLOCK_BITS} nflen {USID_BITS}"
_LWT_SEG6_LOCAL = 7  # LWTUNNEL_ENCAP_SEG6_LOCAL
_END, _END_X = 1, 2  # SEG6_LOCAL_ACTION_END, _END_X
_NEXT_CSID = 1 << 4  # bit of SEG6_LOCAL_FLV_OP_NEXT_CSID


def emit(switch: SwitchView, name: PortName = linux_port) -> dict[str, str]:
    """Return the files of one switch, by ending."""
    return {"batch": batch(switch, name), "sysctl": sysctls(switch, name), "netlink.json": netlink(switch, name)}


def batch(switch: SwitchView, name: PortName = linux_port) -> str:
    """Return what `ip -6 -batch` reads."""
    lines = [f"# {switch.name}: ip -6 -batch THIS_FILE"]
    for port in switch.ports:
        if not port.peer:
            continue
        device = name(port.number, switch.options)
        lines += [
            f"# {device} to {port.peer} port {port.peer_port}",
            f"link set dev {device} address {port.mac} up",
            f"address replace {port.address}/64 dev {device} nodad",
            f"neighbor replace {port.peer_address} lladdr {port.peer_mac} dev {device} nud permanent",
        ]
    lines += [line for entry in switch.entries for line in _route(switch, entry, name)]
    return "\n".join(lines) + "\n"


def _route(switch: SwitchView, entry: Entry, name: PortName) -> list[str]:
    if entry.action == Action.UN:
        device = name(_first_port(switch), switch.options)
        return [f"route replace {entry.prefix} encap seg6local action End {_FLAVOUR} dev {device}"]
    port, device = switch.port(entry.port), name(entry.port, switch.options)
    if entry.action == Action.ROUTE:
        return [f"route replace {entry.prefix} via {port.peer_address} dev {device}"]
    return [
        f"route replace {port.peer_identity}/128 dev {device}",
        f"neighbor replace {port.peer_identity} lladdr {port.peer_mac} dev {device} nud permanent",
        f"route replace {entry.prefix} encap seg6local action End.X nh6 {port.peer_identity} {_FLAVOUR} dev {device}",
    ]


def _first_port(switch: SwitchView) -> int:
    return next(port.number for port in switch.ports if port.peer)


def sysctls(switch: SwitchView, name: PortName = linux_port) -> str:
    """Return what `sysctl -p` reads."""
    lines = ["net.ipv6.conf.all.forwarding = 1", "net.ipv6.conf.all.seg6_enabled = 1"]
    devices = (name(port.number, switch.options) for port in switch.ports if port.peer)
    return "\n".join([*lines, *(f"net.ipv6.conf.{device}.seg6_enabled = 1" for device in devices)]) + "\n"


def netlink(switch: SwitchView, name: PortName = linux_port) -> str:
    """Return one RTM_NEWROUTE description a line, for software that speaks netlink itself."""
    lines = (json.dumps(message) for entry in switch.entries for message in [_message(switch, entry, name)])
    return "\n".join(lines) + "\n"


def _message(switch: SwitchView, entry: Entry, name: PortName) -> dict[str, Any]:
    address, length = entry.prefix.split("/")
    number = _first_port(switch) if entry.action == Action.UN else entry.port
    message: dict[str, Any] = {"type": "RTM_NEWROUTE", "family": "AF_INET6", "RTA_DST": address, "dst_len": int(length)}
    message["RTA_OIF"] = name(number, switch.options)
    if entry.action == Action.ROUTE:
        return {**message, "RTA_GATEWAY": switch.port(entry.port).peer_address}
    flavours = {
        "SEG6_LOCAL_FLV_OPERATION": _NEXT_CSID,
        "SEG6_LOCAL_FLV_LCBLOCK_BITS": BLOCK_BITS,
        "SEG6_LOCAL_FLV_LCNODE_FN_BITS": USID_BITS,
    }
    encap: dict[str, Any] = {"SEG6_LOCAL_ACTION": _END if entry.action == Action.UN else _END_X}
    if entry.action == Action.UA:
        encap["SEG6_LOCAL_NH6"] = switch.port(entry.port).peer_identity
    encap["SEG6_LOCAL_FLAVORS"] = flavours
    return {**message, "RTA_ENCAP_TYPE": _LWT_SEG6_LOCAL, "RTA_ENCAP": encap}


def read(text: str, source: str) -> list[Installed]:
    """Read what `ip -6 -j route show` prints; routes that are none of ours are left to the caller."""
    routes = parse_json(text, source)
    if not isinstance(routes, list):
        raise ConfigError(f"{source}: expected the list that `ip -6 -j route show` prints")
    return [_installed(route, source) for route in routes if _is_entry(route)]


def _is_entry(route: Any) -> bool:
    return isinstance(route, dict) and "dst" in route and route["dst"] != "default" and "type" not in route


def _installed(route: dict[str, Any], source: str) -> Installed:
    prefix, device = normal_prefix(str(route["dst"]), source), str(route.get("dev", ""))
    if route.get("encap") != "seg6local":
        return Installed(prefix, Action.ROUTE, device)
    flavoured = "next-csid" in route.get("flavors", [])
    lengths = (route.get("lblen", BLOCK_BITS), route.get("nflen", USID_BITS))
    if not flavoured or lengths != (BLOCK_BITS, USID_BITS):
        return Installed(prefix, Action.ROUTE, f"{device} (seg6local {route.get('action')} without next-csid 32+16)")
    if route.get("action") == "End":
        return Installed(prefix, Action.UN, "")
    return Installed(prefix, Action.UA, device)
