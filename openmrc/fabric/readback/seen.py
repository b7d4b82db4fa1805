"""What one switch's files say of it without a plan: ports, addresses, MAC, neighbours, uSIDs and routes.

The sections are those of this folder's readers; here the few statements that make a fabric are taken from them.
"""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from openmrc.fabric.addressing.sid_tables import Action
from openmrc.fabric.cables.lldp import Neighbour
from openmrc.fabric.export.kernel import OWN
from openmrc.fabric.readback import kernel_state
from openmrc.fabric.readback.dump import ROUTES, SIDS, Sections
from openmrc.fabric.readback.lines import by_name

_PEER_LINE = re.compile(r"^# (\S+) to (.+)$", re.MULTILINE)  # of the Linux export's batches
_MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")
_RATE = re.compile(r"^class add dev (\S+) parent 1: classid 1:1$")
_NVUE_SID = re.compile(r"router segment-routing static srv6-sid (\S+) behavior$")
_NVUE_ROUTE = re.compile(r"vrf default router static (\S+) via (\S+) interface$")
SEVERAL = "several next hops"
UPPER_BITS = 48
_LOCATOR = "segment-routing / srv6 / locators / locator "
_F3216 = "block-len 32 node-len 16"
_BEHAVIORS = {"uN": Action.UN, "uA": Action.UA}


class SeenEntry(NamedTuple):
    """A uSID or a route of a switch."""

    prefix: str
    action: Action | None  # None: neither of the plan's kinds
    interface: str  # empty: not said
    via: str  # address of the next hop, empty: not said
    other: str = ""  # what it is if it is of neither kind


@dataclass
class SeenPort:
    addresses: list[str] = field(default_factory=list)  # with prefix length
    mac: str = ""  # empty: the switch's
    gbps: float = 0  # 0: not said
    description: str = ""
    neighbours: list[Neighbour] = field(default_factory=list)  # by LLDP


@dataclass
class SeenSwitch:
    """The content of one switch's files."""

    name: str
    mac: str = ""
    ports: dict[str, SeenPort] = field(default_factory=dict)  # in the order of the files
    entries: list[SeenEntry] = field(default_factory=list)
    locators: list[str] = field(default_factory=list)  # of micro-segments (F3216), by FRR
    pinned: dict[tuple[str, str], str] = field(default_factory=dict)  # (interface, neighbour's address) -> its MAC

    def port(self, name: str) -> SeenPort:
        """Return a port, a new one at first sight."""
        return self.ports.setdefault(name, SeenPort())

    def address(self, port: str, text: str) -> None:
        if (usual := usual_address(text)) and usual not in self.port(port).addresses:
            self.port(port).addresses.append(usual)

    def entry(self, prefix: str, action: Action | None, interface: str = "", via: str = "", other: str = "") -> None:
        """Note a uSID or a route; default routes and those that are no IPv6 are none of the fabric's."""
        usual = usual_address(prefix)
        if usual and not usual.endswith("/0"):
            self.entries.append(SeenEntry(usual, action, interface, usual_address(via), "" if action else other))


Prefixes = dict[tuple[int, int], set[SeenEntry]]  # by length and leading bits


def by_prefix(switch: SeenSwitch) -> Prefixes:
    """Return a switch's entries by prefix; those longer than `UPPER_BITS` as if they were one bit longer."""
    found: Prefixes = defaultdict(set)
    for each in switch.entries:
        network = ipaddress.IPv6Interface(each.prefix).network
        first = int(network.network_address) >> 128 - min(network.prefixlen, UPPER_BITS)
        found[min(network.prefixlen, UPPER_BITS + 1), first].add(each)
    return found


@lru_cache(maxsize=1 << 17)  # all switches have the same few prefixes
def usual_address(text: str) -> str:
    """Return an IPv6 address or prefix as RFC 5952 writes it; empty if it is none."""
    try:
        return str(ipaddress.IPv6Interface(text)) if "/" in text else str(ipaddress.IPv6Address(text))
    except ValueError:
        return ""


def _usual_mac(text: str) -> str:
    """Return a MAC in small letters; empty if it is none."""
    return text.lower() if _MAC.match(text.lower()) else ""


def link_local_of(mac: str) -> str:
    """Return the link-local address that IPv6 makes of a MAC (RFC 4291, appendix A)."""
    parts = bytes.fromhex(mac.replace(":", ""))
    middle = bytes((parts[0] ^ 2, parts[1], parts[2], 0xFF, 0xFE, parts[3], parts[4], parts[5]))
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + middle))


def see(switch: SeenSwitch, target: str, sections: Sections, text: str) -> None:
    """Add what a file says to what is known of its switch."""
    if ROUTES in sections or SIDS in sections or kernel_state.PORTS in sections:
        _see_running(switch, sections)
        return
    _READERS[target](switch, sections)
    for port, peer in _PEER_LINE.findall(text) if "batch" in sections else ():
        switch.port(port).description = peer


def _see_running(switch: SeenSwitch, sections: Sections) -> None:
    for name, row in sections.get(kernel_state.PORTS, {}).items():
        if row.get("link_type") == "ether" and not name.startswith(OWN):
            for each in row.get("addr_info", ()):
                switch.address(name, f"{each.get('local')}/{each.get('prefixlen')}")
            switch.port(name).mac = _usual_mac(str(row.get("address", "")))
    for prefix, row in {**sections.get(SIDS, {}), **sections.get(ROUTES, {})}.items():
        action = {"un": Action.UN, "ua": Action.UA, "route": Action.ROUTE}.get(row["action"])
        switch.entry(prefix, action, row.get("interface", ""), row.get("via", row.get("nh6", "")), row["action"])


def _values(items: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for item, values in items.items():
        yield item, values if isinstance(values, tuple) else (str(values),)


def _hop(words: Iterable[str]) -> tuple[str, str]:
    """Return interface and address among the words of a route; both systems write one or both, in either order."""
    known = list(words)
    via = next((word for word in known if usual_address(word)), "")
    return next((word for word in known if word != via and not word.isdigit()), ""), via


def _see_route(switch: SeenSwitch, item: str, values: tuple[str, ...]) -> None:
    """Note a line `ipv6 route PREFIX ..`; what leads nowhere, or several ways, is of neither kind."""
    words = values[0].split(" ")
    other = "blackhole" if {"blackhole", "Null0", "reject"} & set(words) else SEVERAL if len(values) > 1 else ""
    interface, via = ("", "") if other else _hop(words)
    switch.entry(item.split(" ")[2], None if other else Action.ROUTE, interface, via, other)


def _see_blocks(switch: SeenSwitch, sections: Sections) -> None:
    """Take interfaces and routes of FRR and EOS."""
    for section, items in sections.items():
        name, _, inner = section.removeprefix("interface ").partition(" / ")
        if not section.startswith("interface ") or inner:
            continue
        for item, values in _values(items):
            if item.startswith("ipv6 address "):
                switch.address(name, item.split(" ")[2])
            elif item == "description":
                switch.port(name).description = values[0].strip('"')
            elif item == "speed" and (match := re.match(r"(?:forced )?(\d+)g", values[0])):
                switch.port(name).gbps = float(match[1])
    for item, values in _values(sections.get("system", {})):
        if item.startswith("ipv6 route "):
            _see_route(switch, item, values)


def _see_frr(switch: SeenSwitch, sections: Sections) -> None:
    _see_blocks(switch, sections)
    for item, values in _values(sections.get("segment-routing / srv6 / static-sids", {})):
        words = values[0].split(" ")
        named = by_name(words)
        behavior = named.get("behavior", "") if len(values) == 1 else SEVERAL
        ways = named.get("interface", ""), named.get("nexthop", "")
        switch.entry(item.split(" ")[1], _BEHAVIORS.get(behavior), *ways, behavior)
    for section, items in sections.items():
        prefix, _, lengths = items.get("prefix", ("",))[0].partition(" ")
        if section.startswith(_LOCATOR) and items.get("behavior") == ("usid",) and lengths.startswith(_F3216):
            switch.locators.append(usual_address(prefix))
    _see_kernel(switch, sections)


def _see_kernel(switch: SeenSwitch, sections: Sections) -> None:
    """Take the batches of ip and tc."""
    for item, values in _values(sections.get("links", {})):
        words = values[0].split(" ")
        if item.startswith("link set dev ") and words[0] == "address":
            switch.port(item.split(" ")[3]).mac = _usual_mac(words[1])
    for item, values in _values(sections.get("tc", {})):
        if match := _RATE.match(item):
            rate = by_name(values[0].split(" ")[1:]).get("rate", "")
            switch.port(match[1]).gbps = _number(rate.removesuffix("bit")) / 1e9
    for item, values in _values(sections.get("batch", {})):
        words, value = item.split(" "), values[0].split(" ")
        if words[:2] == ["address", "replace"] and words[3:4] == ["dev"]:
            switch.address(words[4], words[2])
        elif words[:2] == ["neighbor", "replace"]:
            named = by_name(value)
            switch.pinned[named.get("dev", ""), words[2]] = _usual_mac(named.get("lladdr", ""))
        elif words[:2] == ["route", "replace"] and words[2].endswith("/48"):
            _see_batch_route(switch, words[2], value)


def _see_batch_route(switch: SeenSwitch, prefix: str, value: list[str]) -> None:
    if value[0] != "encap":
        named = by_name(value)
        other = "" if {"via", "dev"} <= named.keys() else " ".join(value)
        switch.entry(prefix, None if other else Action.ROUTE, named.get("dev", ""), named.get("via", ""), other)
        return
    named = by_name(value[2:] if value[1:2] == ["seg6local"] else [])
    kind = {"End": Action.UN, "End.X": Action.UA}.get(named.get("action", ""))
    switch.entry(prefix, kind, "" if kind is Action.UN else value[-1], named.get("nh6", ""), " ".join(value))


def _number(text: str) -> float:
    """Return a number of a file; 0 if it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _see_eos(switch: SeenSwitch, sections: Sections) -> None:
    _see_blocks(switch, sections)
    for section, items in sections.items():
        if not section.startswith("router srv6 / ") or " / locator " not in section:
            continue
        begin, value = section.partition(" / locator ")[0], items.get("prefix", ("",))[0]
        if match := re.fullmatch(r"micro-segment domain (\S+) end usid 0x([0-9a-f]{1,4})", value):
            block = sections.get(f"{begin} / micro-segment domain {match[1]}", {}).get("block", ("",))[0]
            switch.entry(f"{block.partition('::')[0]}:{match[2]}::/48", Action.UN)


def _see_nvue(switch: SeenSwitch, sections: Sections) -> None:
    for item, values in _values(sections.get("interface", {})):
        words = item.split(" ")
        for name in words[1].split(","):
            if words[2:4] == ["ip", "address"] and name not in ("lo", "eth0"):
                switch.address(name, words[4])
            elif words[2:] == ["description"]:
                switch.port(name).description = values[0].strip('"')
            elif words[2:] == ["link", "speed"]:
                switch.port(name).gbps = _number(values[0].removesuffix("G"))
    for item, values in _values(sections.get("router", {})):
        if match := _NVUE_SID.match(item):
            switch.entry(match[1], _BEHAVIORS.get(values[0]), other=values[0])
    for item, values in _values(sections.get("vrf", {})):
        if match := _NVUE_ROUTE.match(item):
            switch.entry(match[1], Action.ROUTE, values[0], match[2])


def _see_sonic(switch: SeenSwitch, tables: Sections) -> None:
    own = tables.get("DEVICE_METADATA", {}).get("localhost", {})
    switch.mac = _usual_mac(str(own.get("mac", "")))
    for name, row in tables.get("PORT", {}).items():
        port = switch.port(name)
        port.description, port.gbps = str(row.get("description", "")), _number(str(row.get("speed", ""))) / 1000
    for key, row in tables.get("INTERFACE", {}).items():
        name, _, address = key.partition("|")
        if name in switch.ports and address:
            switch.address(name, address)
        elif row.get("ipv6_use_link_local_only") == "enable" and switch.mac:
            switch.address(name, f"{link_local_of(switch.mac)}/64")
    for key, row in tables.get("NEIGH", {}).items():
        name, _, address = key.partition("|")
        switch.pinned[name, usual_address(address)] = _usual_mac(str(row.get("neigh", "")))
    for key, row in tables.get("SRV6_MY_SIDS", {}).items():
        action, ways = str(row.get("action")), (str(row.get("interface", "")), str(row.get("adj", "")))
        switch.entry(key.split("|")[-1], _BEHAVIORS.get(action), *ways, action)
    for key, row in tables.get("STATIC_ROUTE", {}).items():
        hops = (str(row.get("ifname", "")), str(row.get("nexthop", "")))
        other = "blackhole" if row.get("blackhole", "false") != "false" else SEVERAL if "," in "".join(hops) else ""
        switch.entry(key.split("|")[-1], None if other else Action.ROUTE, *hops, other)


_READERS: dict[str, Callable[[SeenSwitch, Sections], None]] = {
    "sonic": _see_sonic, "frr": _see_frr, "cumulus": _see_nvue, "linux": _see_kernel, "eos": _see_eos,
}  # fmt: skip
