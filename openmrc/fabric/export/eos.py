"""Arista EOS. Experimental: no public reference of its uSID commands was found; see the head of the output."""

from __future__ import annotations

import ipaddress

from openmrc.fabric.export.view import SwitchView, eos_port
from openmrc.fabric.tables import Action

_HEAD = """! EXPERIMENTAL. The segment-routing part of this file follows second-hand descriptions of EOS
! (router srv6, micro-segment domain, block, locator, end usid) and was never loaded into a switch.
! Read it beside the manual of your release before use. Static routes are ordinary EOS.
"""


def emit(switch: SwitchView) -> dict[str, str]:
    """Return the configuration of one switch."""
    lines = [f"hostname {switch.name}", "!", "ipv6 unicast-routing", "!"]
    for port in switch.ports:
        if port.peer:
            lines += [f"interface {eos_port(port.number, switch.options)}", f"   description {port.peer}"]
            lines += ["   no switchport", "   ipv6 enable", f"   ipv6 address {port.address}/64", "!"]
    block = ipaddress.IPv6Network(switch.own[0]).supernet(new_prefix=32)
    lines += ["router srv6", "   micro-segment domain MRC", f"      block {block}"]
    for index, prefix in enumerate(switch.own):
        lines += [f"      locator MRC{index or ''}", f"         prefix {prefix}", "         end usid"]
    lines.append("!")
    for entry in switch.entries:
        device = eos_port(entry.port, switch.options) if entry.port >= 0 else ""
        if entry.action == Action.UA:
            lines.append(f"! no form known: {entry.prefix} uA {device}")
        elif entry.action == Action.ROUTE:
            lines.append(f"ipv6 route {entry.prefix} {device} {switch.port(entry.port).peer_address}")
    return {"eos": _HEAD + "\n".join([*lines, "!", "end"]) + "\n"}
