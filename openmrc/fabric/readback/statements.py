"""The entries that line-oriented configurations install: FRR, EOS, NVUE commands, batches of ip.

Each reader finds the same few statements in its own words: addresses of ports, locators, uSIDs, routes.
"""

import re
from collections.abc import Iterator
from typing import Any

from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.export.eos import eos_address
from openmrc.fabric.export.kernel import OWN
from openmrc.fabric.export.linux import FLAVOUR
from openmrc.fabric.export.view import PortName, SwitchView, port_names
from openmrc.fabric.readback import bindings, kernel_state
from openmrc.fabric.readback.dump import Matters, Sections
from openmrc.fabric.readback.forwarding import Installing, in_blocks, mtu_too_small
from openmrc.fabric.readback.lines import KINDS, by_name

_FRR_SIDS, _FRR_LOCATORS = "segment-routing / srv6 / static-sids", "segment-routing / srv6 / locators"
_EOS_LOCATORS = "router srv6 / vrf default"
_PREFIX = re.compile(r"(?<!\S)([0-9a-fA-F]*:[0-9a-fA-F:]*/\d+)(?!\S)")
_STOPS = (
    "shutdown", "ipv6 address", "ip address", "switchport", "vrf", "ip vrf", "channel-group", "ipv6 access-group",
    "mac access-group", "traffic-policy", "service-policy",
)  # fmt: skip


def matters(switch: SwitchView, port_name: PortName) -> Matters:
    """Return the function that decides whether an unplanned statement affects forwarding in the fabric."""
    touches, ports = in_blocks(switch), set(port_names(switch.layout, port_name).values())

    def rule(section: str, item: str, value: Any) -> bool:
        if section.startswith("interface "):
            return section.split(" / ")[0].removeprefix("interface ") in ports and item.startswith(_STOPS)
        if section == "interface":  # NVUE: the port is in the item, or what a bond takes
            words = item.split(" ")
            bonded = ",".join(value) if words[2:] == ["bond", "member"] else ""
            return bool(ports & {*words[1].split(","), *bonded.split(",")})
        if item.startswith("rule add ") or bindings.filtered(item, value) in ports:
            return True
        return any(touches(prefix) and prefix not in switch.others for prefix in _PREFIX.findall(item))

    return rule


def _values(sections: Sections, section: str) -> Iterator[tuple[str, str]]:
    """Yield (item, value) of a section; an item with several values is invalid, its value unknown."""
    for item, values in sections.get(section, {}).items():
        yield item, values[0] if len(values) == 1 else " and ".join(values)


def _one(sections: Sections, section: str, item: str) -> str | None:
    values = sections.get(section, {}).get(item)
    return values[0] if values is not None and len(values) == 1 else None


def _bare(switch: SwitchView, port: int) -> str:
    return switch.port_addresses[port].removesuffix("/64")


def frr(installing: Installing, sections: Sections) -> None:
    """Add the entries that FRR's configuration installs, with its additional files."""
    switch = installing.switch
    for name, number in installing.ports.items():
        here = sections.get(f"interface {name}", {})
        if f"ipv6 address {switch.port_addresses[number]}" not in here:
            installing.down(number, f"interface {name} has not the address {_bare(switch, number)}")
        elif "shutdown" in here:
            installing.down(number, f"interface {name} is shut down")
        elif why := bindings.of_lines(here, bindings.FRR):
            installing.down(number, f"interface {name} {why}")
    obstructed = _kernel_ports(installing, sections)
    has_own = obstructed or _has_own(sections)
    for item, value in _values(sections, "system"):
        if item.startswith("ipv6 route ") and not _ends_block(installing, item, value):
            via, _, device = value.partition(" ")
            installing.out(item.split(" ")[2], Action.ROUTE, device, via)
    for item, value in _values(sections, _FRR_SIDS):
        prefix, named = item.split(" ")[-1], by_name(value.split(" "))
        why = _frr_locator(sections, named.get("locator", ""), prefix, named.get("behavior", ""))
        if named.get("behavior") == "uN":
            installing.own(prefix, why or has_own)
        else:
            installing.out(prefix, Action.UA, named.get("interface", ""), named.get("nexthop"), why)
    _batch_routes(installing, sections, has_own)


def _ends_block(installing: Installing, item: str, value: str) -> bool:
    """Return whether a route is the planned blackhole: for uSIDs that no entry knows."""
    return value.split(" ")[0] in ("blackhole", "Null0") and item.split(" ")[2] == installing.switch.block


def _frr_locator(sections: Sections, name: str, prefix: str, behavior: str) -> str:
    section = f"{_FRR_LOCATORS} / locator {name}"
    found = _one(sections, section, "prefix")
    if found is None:
        return f"its locator {name} is missing"
    if _one(sections, section, "behavior") != "usid" or not found.endswith(" block-len 32 node-len 16"):
        return f"its locator {name} is of another format"
    if behavior == "uN" and found.split(" ")[0] != prefix:
        return f"it is not in its locator {name}"
    return "" if behavior in ("uN", "uA") else f"behavior {behavior}"


def linux(installing: Installing, sections: Sections) -> None:
    """Add the entries that the batches install."""
    switch = installing.switch
    for name, number in installing.ports.items():
        if f"address replace {switch.port_addresses[number]} dev {name}" not in sections.get("batch", {}):
            installing.down(number, f"port {name} has not the address {_bare(switch, number)}")
    obstructed = _kernel_ports(installing, sections)
    _batch_routes(installing, sections, obstructed or _has_own(sections))


def _has_own(sections: Sections) -> str:
    """Return why uSIDs cannot be installed, or an empty string."""
    if why := bindings.rules(sections):
        return why
    items = sections.get("links", {})
    if f"link add {OWN} type" in items and _one(sections, "links", f"link set dev {OWN}") == "up":
        forwards = _one(sections, "sysctl", "net.ipv6.conf.all.forwarding") == "1"
        return "" if forwards else "forwarding is off"
    return f"interface {OWN} is missing or down"


def _kernel_ports(installing: Installing, sections: Sections) -> str:
    """Take ports out of service; return why none can be used, or an empty string."""
    switch = installing.switch
    obstructed = installing.obstruct(kernel_state.obstacles(switch, installing.ports, sections))
    if why := bindings.rules(sections):
        for number in installing.ports.values():
            installing.down(number, why)
    for name, why in bindings.of_kernel(sections):
        if name in installing.ports:
            installing.down(installing.ports[name], f"port {name} {why}")
    forwards = _one(sections, "sysctl", "net.ipv6.conf.all.forwarding") == "1"
    for name, number in installing.ports.items():
        words = (_one(sections, "links", f"link set dev {name}") or "").split(" ")
        named = by_name(words)
        if words[-1] != "up" or named.get("address") != switch.port_macs[number] or mtu_too_small(named.get("mtu", "")):
            installing.down(number, f"port {name} is not up with its MAC and MTU")
        elif not forwards:
            installing.down(number, "forwarding is off")
    return obstructed


def _batch_routes(installing: Installing, sections: Sections, has_own: str) -> None:
    here = sections.get("batch", {})
    for item, value in _values(sections, "batch"):
        if not item.startswith("route replace "):
            continue
        prefix, words = item.split(" ")[2], value.split(" ")
        if prefix in KINDS:
            kind, prefix = prefix, item.split(" ")[3]
            if prefix != installing.switch.block:
                installing.leads_elsewhere(prefix, kind)
        elif value.startswith(f"encap seg6local action End {FLAVOUR} dev "):
            on = words[-1]
            installing.own(prefix, has_own if on == OWN else f"it is attached to {on}")
        elif value.startswith("encap seg6local action End.X nh6 ") and FLAVOUR in value:
            installing.out(prefix, Action.UA, words[-1], words[5], _pinned(installing, here, words[5], words[-1]))
        elif words[0] == "via" and words[2:3] == ["dev"]:
            installing.out(prefix, Action.ROUTE, words[3], words[1])
        elif words[0] == "encap":
            installing.leads_elsewhere(prefix, value)


def _pinned(installing: Installing, here: dict[str, Any], address: str, device: str) -> str:
    """End.X needs its own route and neighbour."""
    port = installing.ports.get(device)
    wanted = f"lladdr {installing.switch.peer_mac(port)} dev {device} nud permanent" if port is not None else ""
    if here.get(f"neighbor replace {address}") != (wanted,):
        return f"neighbour {address} is not pinned"
    return "" if here.get(f"route replace {address}/128") == (f"dev {device}",) else f"no route to {address}"


def cumulus(installing: Installing, sections: Sections) -> None:
    """Add the entries that NVUE commands install."""
    _nvue_ports(installing, sections)
    router = sections.get("router", {})
    disabled = "" if router.get("router segment-routing srv6 state") == ("enabled",) else "segment routing is disabled"
    for item, values in router.items():
        if match := re.match(r"router segment-routing static srv6-sid (\S+) behavior$", item):
            prefix = match.group(1)
            why = disabled or _nvue_locator(router, prefix)
            installing.own(prefix, why) if values == ("uN",) else installing.leads_elsewhere(prefix, values[0])
    for item, values in sections.get("vrf", {}).items():
        if match := re.match(r"vrf default router static (\S+) via (\S+) interface$", item):
            prefix, via = match.groups()
            typed = sections["vrf"].get(f"vrf default router static {prefix} via {via} type") == ("ipv6-address",)
            family = sections["vrf"].get(f"vrf default router static {prefix} address-family") == ("ipv6-unicast",)
            installing.out(prefix, Action.ROUTE, values[0], via, "" if typed and family else "its route is incomplete")


def _nvue_ports(installing: Installing, sections: Sections) -> None:
    switch = installing.switch
    has: dict[str, dict[str, str]] = {name: {} for name in installing.ports}
    for item, values in sections.get("interface", {}).items():
        words = item.split(" ")
        for name in words[1].split(","):
            if name in has:
                has[name][" ".join(words[2:])] = " and ".join(values)
    for name, number in installing.ports.items():
        here, slot = has[name], switch.layout.by_number[number].slot
        if f"ip address {switch.port_addresses[number]}" not in here:
            installing.down(number, f"{name} has not the address {_bare(switch, number)}")
        elif (
            here.get("link state") != "up"
            or here.get("link speed") != f"{slot.speed}G"
            or mtu_too_small(here.get("link mtu", ""))
        ):
            installing.down(number, f"{name} is not at {slot.speed}G and up, or its MTU is too small")
        elif here.get("link fec") != ("rs" if slot.fec else "off"):
            installing.down(number, f"{name} has another FEC")
        elif why := bindings.of_lines(here, bindings.NVUE):
            installing.down(number, f"{name} {why}")
    for name, why in bindings.bonded(sections):
        if name in installing.ports:
            installing.down(installing.ports[name], f"{name} {why}")


def _nvue_locator(router: dict[str, Any], prefix: str) -> str:
    name = router.get(f"router segment-routing static srv6-sid {prefix} locator-name", ("",))[0]
    begin = f"router segment-routing srv6 locator {name}"
    wanted = {"prefix": prefix, "block-length": "32", "node-length": "16", "func-length": "0"}
    bad = [key for key, value in wanted.items() if router.get(f"{begin} {key}") != (value,)]
    return f"its locator {name!r} differs in {', '.join(bad)}" if bad else ""


def eos(installing: Installing, sections: Sections) -> None:
    """Add the entries that an EOS configuration installs."""
    switch = installing.switch
    for name, number in installing.ports.items():
        section, slot = f"interface {name}", switch.layout.by_number[number].slot
        here = dict(_values(sections, section))
        wanted = {"shutdown": "no", "switchport": "no", "speed": f"{slot.speed}g-{slot.lanes}", "ipv6 enable": ""}
        if slot.fec:
            wanted["error-correction encoding"] = "reed-solomon"
        if bad := [item for item, value in wanted.items() if here.get(item) != value]:
            installing.down(number, f"{name} differs in {', '.join(bad)}")
        elif f"ipv6 address {eos_address(switch.port_addresses[number])}" not in here:
            installing.down(number, f"{name} has not the address {_bare(switch, number)}")
        elif mtu_too_small(here.get("mtu", "")):
            installing.down(number, f"{name}: MTU {here.get('mtu')}")
        elif why := bindings.of_lines(here, bindings.EOS):
            installing.down(number, f"{name} {why}")
    routing = "" if "ipv6 unicast-routing" in sections.get("system", {}) else "IPv6 routing is off"
    block = (_one(sections, f"{_EOS_LOCATORS} / micro-segment domain MRC", "block") or "").removesuffix("::/32")
    for section, items in sections.items():
        if section.startswith(f"{_EOS_LOCATORS} / locator "):
            _eos_locator(installing, block, " and ".join(items.get("prefix", ())), routing)
    for item, value in _values(sections, "system"):
        if item.startswith("ipv6 route ") and not _ends_block(installing, item, value):
            device, _, via = value.partition(" ")
            installing.out(item.split(" ")[2], Action.ROUTE, device, via, routing)


def _eos_locator(installing: Installing, block: str, value: str, why: str) -> None:
    """Process a locator of EOS: `micro-segment domain NAME end usid 0x1000`."""
    match = re.fullmatch(r"micro-segment domain MRC end usid 0x([0-9a-f]{1,4})", value)
    parts = block.split(":")
    if match is None or len(parts) != 2:
        installing.found.dead.append(f"locator {value}")
        return
    installing.own(f"{block}:{int(match.group(1), 16):x}::/48", why)
