"""Arista EOS: a configuration to be copied to startup-config or pasted into a session.

Where each part comes from:
  router srv6       Arista note "SRv6 uN Support" (4.34.2F; 7060X6; 7280R3 from 4.35.1F, TCAM profile srv6-usid-f3216):
                    `vrf default`, a micro-segment domain with its block, a locator for each uSID of the switch. The
                    prefix follows from block and `end usid`. GIB is 0x1 to 0xdfff, where the tiers' ranges have to be
  ipv6 route        user manual, "IPv6"; the same note: next hops may be link-local
  interface         user manual, "Ethernet Ports": speed, error-correction encoding; "Data Transfer": mtu; "IPv6":
                    `ipv6 address .. link-local`; AVD data model `ethernet_interfaces` for the same words
  qos, tx-queue     user manual, "Quality of Service", Trident and Tomahawk: maps, `random-detect ecn`
  lldp, ntp, Management1
                    user manual, "LLDP", "System Clock and NTP", "Initial Configuration"

The note on uA (4.35.0F) is not public in full: a shifting downlink is refused. Neither is the note on packet trimming
(October 2025): trimming is left out with a warning. No EOS has loaded a file of ours.
"""

import ipaddress
from functools import lru_cache

from openmrc.errors import ConfigError
from openmrc.fabric.export.cages import eos_port
from openmrc.fabric.export.frr import locator_name
from openmrc.fabric.export.options import CONTROL, DATA, DATA_SHARE, OTHER, OTHER_SHARE, QUEUE, class_of
from openmrc.fabric.export.view import LAST_DISTANCE, PortLayout, PortLook, SwitchView, port_names

_LAST_GLOBAL = 0xDFFF  # of the GIB


def port_name(port: PortLook) -> str:
    return port.name or eos_port(port.slot)


def eos_address(address: str) -> str:
    """Write a port's address as `ipv6 address` takes it."""
    return f"{address} link-local" if address.startswith("fe80:") else address


def emit(switch: SwitchView) -> dict[str, str]:
    lines = [f"! {switch.name}: EOS 4.34.2F or later; written from public documents, never loaded into a switch"]
    lines += [
        f"hostname {switch.name}",
        "!",
        "lldp run",
        *(f"ntp server {server}" for server in switch.options.ntp),
        "!",
    ]
    lines += [*_management(switch), "ipv6 unicast-routing", "!", *_classes(switch.layout)]
    names, texts = port_names(switch.layout, port_name), _interfaces(switch.layout, switch.options.mtu)
    lines += [
        f"interface {name}\n   description {peer}\n{text}\n   ipv6 address {eos_address(address)}\n!"
        for name, peer, text, address in zip(
            names.values(), switch.peers, texts, switch.port_addresses.values(), strict=True
        )
    ]
    return {"eos": "\n".join([*lines, *_segment_routing(switch), *_routes(switch), "!", "end"]) + "\n"}


def _management(switch: SwitchView) -> list[str]:
    found = switch.management()
    if not found:
        return ["interface Management1", "   ip address dhcp", "!"]
    family = "ipv6" if ":" in found[0] else "ip"
    default = "::/0" if family == "ipv6" else "0.0.0.0/0"
    return [
        "interface Management1",
        f"   {family} address {found[0]}",
        "!",
        f"{family} route {default} {found[1]}",
        "!",
    ]


@lru_cache(maxsize=64)
def _classes(layout: PortLayout) -> tuple[str, ...]:
    lines = [
        f"qos map dscp {dscp} to traffic-class {tc}" for dscp, tc in class_of(layout.ports[0].settings.dscp).items()
    ]
    lines += [f"qos map traffic-class {tc} to tx-queue {queue}" for tc, queue in QUEUE.items()]
    return (*lines, "!")


@lru_cache(maxsize=64)
def _interfaces(layout: PortLayout, mtu: int) -> list[str]:
    """Return each port's lines except the addresses."""
    return ["\n".join(_interface(port, mtu)) for port in layout.ports]


def _interface(port: PortLook, mtu: int) -> list[str]:
    slot, settings = port.slot, port.settings
    lines = ["   no shutdown", f"   mtu {mtu}", f"   speed {slot.speed}g-{slot.lanes}"]
    if slot.fec:
        lines.append("   error-correction encoding reed-solomon")
    lines += ["   no switchport", "   qos trust dscp", f"   tx-queue {QUEUE[CONTROL]}", "      priority strict", "   !"]
    lines += [f"   tx-queue {QUEUE[DATA]}", "      no priority", f"      bandwidth percent {DATA_SHARE}"]
    if settings.mark_high:
        lines.append(
            f"      random-detect ecn minimum-threshold {settings.mark_low} bytes maximum-threshold "
            f"{settings.mark_high} bytes max-mark-probability 100 weight 0"
        )
    lines += [
        "   !",
        f"   tx-queue {QUEUE[OTHER]}",
        "      no priority",
        f"      bandwidth percent {OTHER_SHARE}",
        "   !",
    ]
    return [*lines, "   ipv6 enable"]


def _segment_routing(switch: SwitchView) -> list[str]:
    own = [int(ipaddress.IPv6Network(prefix).network_address) >> 80 for prefix in switch.own]
    block = ipaddress.IPv6Network((own[0] >> 16 << 96, 32))
    lines = ["router srv6", "   vrf default", "      micro-segment domain MRC", f"         block {block}", "      !"]
    for index, value in enumerate(own):
        usid = value & 0xFFFF
        if usid > _LAST_GLOBAL:
            raise ConfigError(
                f"{switch.name}: uSID {usid:#x}; EOS takes 0x1 to {_LAST_GLOBAL:#x}, see `usid` in the fabric"
            )
        lines.append(f"      locator {locator_name(index)}")
        lines += [f"         prefix micro-segment domain MRC end usid {usid:#06x}", "      !"]
    return [*lines, "   !", "!"]


def _routes(switch: SwitchView) -> list[str]:
    if switch.adjacencies:
        raise ConfigError(
            f"{switch.name}: EOS's uA is not documented in public; use `usid.downlink: route` in the fabric"
        )
    names = port_names(switch.layout, port_name)
    routes = [f"ipv6 route {prefix} {names[port]} {next_hop}" for prefix, next_hop, port in switch.routes]
    return [*routes, f"ipv6 route {switch.block} Null0 {LAST_DISTANCE}"]


def warnings(switch: SwitchView) -> list[str]:
    """Return the requirements of EOS, and the omitted settings."""
    notes = [
        "SRv6 uN needs EOS 4.34.2F on 7060X6, 4.35.1F on 7280R3; a small part of the words is from AVD's data model"
    ]
    if switch.options.trimming:
        notes.append(
            "trimming is left out: its commands are not public; 7060X6 trims by an ingress traffic policy (4.35.1F)"
        )
    return notes
