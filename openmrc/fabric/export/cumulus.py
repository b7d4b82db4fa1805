"""Cumulus Linux: NVUE commands (NVUE reference, Segment Routing; 5.14 and up, Spectrum-4, default VRF).

Documented formats: uN with a 32-bit block, uA only with a 16-bit block. A shifting downlink in a 32-bit block is
therefore refused rather than guessed. At most 256 locators a switch.
"""

from __future__ import annotations

from openmrc.errors import ConfigError
from openmrc.fabric.export.frr import locator_name
from openmrc.fabric.export.view import SwitchView, cumulus_port
from openmrc.fabric.tables import Action

MOST_LOCATORS = 256


def emit(switch: SwitchView) -> dict[str, str]:
    """Return the commands of one switch."""
    if len(switch.own) > MOST_LOCATORS:
        raise ConfigError(f"{switch.name}: {len(switch.own)} uSIDs of its own; Cumulus takes {MOST_LOCATORS} locators")
    lines = [f"# {switch.name}", f"nv set system hostname {switch.name}"]
    for port in switch.ports:
        if port.peer:
            device = cumulus_port(port.number, switch.options)
            lines.append(f"nv set interface {device} link state up")
            lines.append(f"nv set interface {device} ip address {port.address}/64")
    lines.append("nv set router segment-routing srv6 state enabled")
    for index, prefix in enumerate(switch.own):
        locator = f"nv set router segment-routing srv6 locator {locator_name(index)}"
        lines += [f"{locator} prefix {prefix}", f"{locator} block-length 32", f"{locator} node-length 16"]
        lines.append(f"{locator} func-length 0")
        sid = f"nv set router segment-routing static srv6-sid {prefix}"
        lines += [f"{sid} behavior uN", f"{sid} locator-name {locator_name(index)}"]
    for entry in switch.entries:
        if entry.action == Action.UA:
            raise ConfigError(
                f"{switch.name}: Cumulus documents uA for 16-bit blocks only; use `usid.downlink: route` in the fabric"
            )
        if entry.action == Action.ROUTE:
            device, peer = cumulus_port(entry.port, switch.options), switch.port(entry.port).peer_address
            route = f"nv set vrf default router static {entry.prefix}"
            lines += [f"{route} address-family ipv6-unicast", f"{route} via {peer} type ipv6-address"]
            lines.append(f"{route} via {peer} interface {device}")
    return {"nvue": "\n".join([*lines, "nv config apply -y"]) + "\n"}
