"""Cumulus Linux: NVUE commands (NVUE command reference; 5.15, Spectrum-4 and later, default VRF).

Where each command comes from, by chapter of the reference and the user guide:
  system hostname; eth0          "System Configuration", "Interface" (management network, VRF mgmt)
  service lldp, service ntp      "LLDP", "NTP"
  interface .. link, ip          "Interface": breakout, speed, fec, mtu, state, addresses
  qos, packet-trim               "QoS", "Packet Trimming" (trimming 5.14; DSCP by port, and as many bytes as here, 5.15)
  router segment-routing         "Segment Routing" (5.14)
  vrf default router static      "Static Routing"

Documented formats: uN with a 32-bit block, uA only with a 16-bit block. A shifting downlink in a 32-bit block is
therefore refused rather than guessed. At most 256 locators a switch. Commands for many ports name them in one list.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import TypeVar

from openmrc.errors import ConfigError
from openmrc.fabric.export.cages import cumulus_port
from openmrc.fabric.export.frr import locator_name
from openmrc.fabric.export.options import (
    CONTROL,
    DATA,
    DATA_SHARE,
    OTHER,
    OTHER_SHARE,
    QUEUE,
    TRIMMED_HERE,
    class_of,
    trim_size,
)
from openmrc.fabric.export.view import PortLayout, PortLook, SwitchView, port_names
from openmrc.fabric.model.topology import LinkTier

MOST_LOCATORS = 256
_TRIM_LEAST = 256  # bytes; 256 to 1024 in steps of four
_Kind = TypeVar("_Kind", bound=Hashable)


def port_name(port: PortLook) -> str:
    return port.name or cumulus_port(port.slot)


def emit(switch: SwitchView) -> dict[str, str]:
    if len(switch.own) > MOST_LOCATORS:
        raise ConfigError(f"{switch.name}: {len(switch.own)} uSIDs of its own; Cumulus takes {MOST_LOCATORS} locators")
    lines = [f"# {switch.name}", f"nv set system hostname {switch.name}", *_management(switch)]
    lines += [*_of_layout(switch.layout, switch.options.mtu), *_ports(switch), *_segment_routing(switch)]
    return {"nvue": "\n".join([*lines, "nv config apply -y"]) + "\n"}


def _management(switch: SwitchView) -> list[str]:
    lines = ["nv set service lldp state enabled"]
    lines += [f"nv set service ntp mgmt server {server}" for server in switch.options.ntp]
    if found := switch.management():
        lines += [f"nv set interface eth0 ip address {found[0]}", f"nv set interface eth0 ip gateway {found[1]}"]
    return lines


@lru_cache(maxsize=64)
def _of_layout(layout: PortLayout, mtu: int) -> tuple[str, ...]:
    """Return the commands that all switches of a tier share."""
    every = _names(layout.ports)
    lines = [f"nv set interface {names} link breakout {parts}x" for parts, names in _cages(layout).items() if parts > 1]
    for (speed, fec), names in _grouped(layout, lambda port: (port.slot.speed, port.slot.fec)).items():
        lines += [
            f"nv set interface {names} link speed {speed}G",
            f"nv set interface {names} link fec {'rs' if fec else 'off'}",
        ]
    lines += [f"nv set interface {every} link mtu {mtu}", f"nv set interface {every} link state up"]
    return (*lines, *_classes(layout, every), *(_trimming(layout, every) if layout.trimming else []))


def _cages(layout: PortLayout) -> dict[int, str]:
    found: dict[int, list[str]] = defaultdict(list)
    for port in layout.ports:
        if port.slot.part == 0 and not port.name:  # a switch that exists is split already
            found[port.slot.parts].append(f"swp{port.slot.cage + 1}")
    return {parts: ",".join(names) for parts, names in found.items()}


def _grouped(layout: PortLayout, kind: Callable[[PortLook], _Kind]) -> dict[_Kind, str]:
    found: dict[_Kind, list[PortLook]] = defaultdict(list)
    for port in layout.ports:
        found[kind(port)].append(port)
    return {key: _names(ports) for key, ports in found.items()}


def _names(ports: Iterable[PortLook]) -> str:
    return ",".join(port_name(port) for port in ports)


def _classes(layout: PortLayout, every: str) -> list[str]:
    dscp = layout.ports[0].settings.dscp
    lines = ["nv set qos mapping MRC trust l3", f"nv set qos mapping MRC port-default-sp {OTHER}"]
    lines += [
        f"nv set qos mapping MRC dscp {each} switch-priority {class_of(dscp).get(each, OTHER)}" for each in range(64)
    ]
    lines += [
        f"nv set qos egress-queue-mapping MRC switch-priority {tc} traffic-class {queue}" for tc, queue in QUEUE.items()
    ]
    scheduler = "nv set qos egress-scheduler MRC traffic-class"
    lines += [f"{scheduler} {QUEUE[CONTROL]} mode strict", f"{scheduler} {QUEUE[DATA]} mode dwrr"]
    lines += [f"{scheduler} {QUEUE[DATA]} bw-percent {DATA_SHARE}", f"{scheduler} {QUEUE[OTHER]} mode dwrr"]
    lines.append(f"{scheduler} {QUEUE[OTHER]} bw-percent {OTHER_SHARE}")
    lines += [
        f"nv set interface {every} qos {what} profile MRC"
        for what in ("mapping", "egress-queue-mapping", "egress-scheduler")
    ]
    for (low, high), names in _grouped(layout, lambda port: (port.settings.mark_low, port.settings.mark_high)).items():
        lines += _marks(low, high, names) if high else []
    return lines


def _marks(low: int, high: int, names: str) -> list[str]:
    profile = f"MRC-{low}-{high}"
    begin = f"nv set qos congestion-control {profile} traffic-class {QUEUE[DATA]}"
    lines = [
        f"{begin} ecn enable",
        f"{begin} red disable",
        f"{begin} min-threshold {low}",
        f"{begin} max-threshold {high}",
    ]
    return [*lines, f"{begin} probability 100", f"nv set interface {names} qos congestion-control profile {profile}"]


def _trimming(layout: PortLayout, every: str) -> list[str]:
    settings = layout.ports[0].settings
    begin = "nv set system forwarding packet-trim"
    lines = [f"{begin} state enabled", f"{begin} size {trim_size(_TRIM_LEAST, settings.keep)}"]
    lines += [
        f"{begin} switch-priority {TRIMMED_HERE}",
        f"nv set interface {every} packet-trim egress-eligibility traffic-class {QUEUE[DATA]}",
    ]
    if not layout.has_hosts:
        return [*lines, f"{begin} remark dscp {settings.dscp.trimmed}"]
    lines.append(f"{begin} remark dscp port-level")
    for is_last, names in _grouped(layout, lambda port: port.tier == LinkTier.HOST).items():
        profile, dscp = (
            ("MRC-LAST-HOP", settings.dscp.trimmed_last_hop) if is_last else ("MRC-FABRIC", settings.dscp.trimmed)
        )
        lines.append(f"nv set qos remark {profile} switch-priority {TRIMMED_HERE} dscp {dscp}")
        lines.append(f"nv set interface {names} qos remark profile {profile}")
    return lines


def _ports(switch: SwitchView) -> list[str]:
    names = port_names(switch.layout, port_name)
    described = (
        f'nv set interface {name} description "{peer}"' for name, peer in zip(names.values(), switch.peers, strict=True)
    )
    groups: dict[str, list[str]] = defaultdict(list)
    for number, address in switch.port_addresses.items():
        groups[address].append(names[number])
    return [*(f"nv set interface {','.join(own)} ip address {address}" for address, own in groups.items()), *described]


def _segment_routing(switch: SwitchView) -> list[str]:
    names = port_names(switch.layout, port_name)
    lines = ["nv set router segment-routing srv6 state enabled"]
    for index, prefix in enumerate(switch.own):
        locator = f"nv set router segment-routing srv6 locator {locator_name(index)}"
        lines += [f"{locator} prefix {prefix}", f"{locator} block-length 32", f"{locator} node-length 16"]
        lines.append(f"{locator} func-length 0")
        sid = f"nv set router segment-routing static srv6-sid {prefix}"
        lines += [f"{sid} behavior uN", f"{sid} locator-name {locator_name(index)}"]
    if switch.adjacencies:
        raise ConfigError(
            f"{switch.name}: Cumulus documents uA for 16-bit blocks only; use `usid.downlink: route` in the fabric"
        )
    for prefix, next_hop, port in switch.routes:
        route = f"nv set vrf default router static {prefix}"
        via = f"{route} via {next_hop}"
        lines.append(f"{route} address-family ipv6-unicast\n{via} type ipv6-address\n{via} interface {names[port]}")
    last = f"nv set vrf default router static {switch.block}"
    return [*lines, f"{last} address-family ipv6-unicast", f"{last} via blackhole type blackhole"]


def warnings(switch: SwitchView) -> list[str]:
    """Return the switches and releases that accept these commands."""
    notes = ["segment routing needs Cumulus Linux 5.14 and Spectrum-4, in the default VRF"]
    if switch.options.trimming:
        notes.append(
            "trimming needs Spectrum-4 or later, Cumulus Linux 5.15 for a DSCP of its own on the last hop, one service "
            "port of the switch, and no NetQ WJH agent"
        )
    return notes
