"""What a running kernel does with packets beside its routes, from JSON of iproute2 and nft.

  ip -6 -j rule show                  rules that come before the main table, where the routes are (ip-rule(8))
  ip -j -d address show               ports: master, MAC, MTU, carrier, link-local address (ip-address(8))
  ip -6 -j neigh show nud all         neighbours (ip-neighbour(8))
  nft -j list ruleset                 packet filters (`nftables`)

A namespace of this machine also shows its local table, sysctls, XFRM, queues and filters of tc (`queues`). A dump is
known by its content, an empty one by its file's name. What may keep a
packet from its route is named with the ports that it takes out of service; so is what is not understood.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from openmrc.fabric.export.kernel import sysctls
from openmrc.fabric.export.view import PortName, SwitchView, port_names
from openmrc.fabric.readback import nftables, queues
from openmrc.fabric.readback.dump import LOCAL, Row, Sections
from openmrc.fabric.readback.forwarding import Obstacles, in_blocks, mtu_too_small
from openmrc.fabric.readback.lines import batch

RULES, PORTS, NEIGHBOURS, FILTERS = "ip rule", "port", "neighbour", "nftables"
SETTINGS, UNUSUAL, LEGACY, POLICIES = "running sysctl", "unusual sysctl", "ip6tables", "ip xfrm policy"
SECTIONS = {  # what each shows
    RULES: "ip rules", LOCAL: "the local table", PORTS: "masters, MACs, MTUs and carriers of ports",
    NEIGHBOURS: "neighbours", FILTERS: "filters of nftables", queues.QUEUES: "queues", queues.FILTERS: "filters of tc",
    SETTINGS: "sysctls", LEGACY: "filters of ip6tables-legacy", POLICIES: "XFRM",
    "bpf": "BPF of tcx and netfilter",  # no command of iproute2 6.1 or nft 1.0.6 shows it
}  # fmt: skip
_EMPTY = {"rule": RULES, "addr": PORTS, "link": PORTS, "neigh": NEIGHBOURS}  # begins of words in a file's name
_UNICAST = ("lookup local", "lookup main")
HOOKS_OF_TUNNELS = "net.netfilter.nf_hooks_lwtunnel"
_FORWARDING = "net.ipv6.conf.all.forwarding"
_MAC, _MTU, _ADDRESS, _STATE, _MASTER = "MAC", "MTU", "address", "state", "master"


def read(dump: Any, source: str) -> Sections | None:
    """Return the sections of a parsed dump; None if it is none of these."""
    if isinstance(dump, dict):
        return {FILTERS: {"ruleset": list(nftables.read(dump))}} if "nftables" in dump else None
    if not isinstance(dump, list):
        return None
    rows = [row for row in dump if isinstance(row, dict)]
    if not rows:
        name = source.rpartition("/")[2]
        kind = next((section for begin, section in _EMPTY.items() if f".{begin}" in name), None)
        return None if kind is None else {kind: {}}
    if "ifname" in rows[0]:
        return {PORTS: {str(row.get("ifname")): row for row in rows}}
    if "priority" in rows[0]:
        return {RULES: {f"{number:05}": row for number, row in enumerate(rows)}}
    if "dst" in rows[0] and "state" in rows[0]:
        return {NEIGHBOURS: {f"{row.get('dst')} {row.get('dev')}": row for row in rows}}
    return None


def of_settings(text: str) -> Sections:
    """Return the section of the sysctls that the plan sets."""
    return {SETTINGS: batch(SETTINGS)(text).get(SETTINGS, {})}


def of_legacy(names: str, rules: str | None) -> Sections:
    """Read ip6tables-legacy: the names of its tables, and what ip6tables-legacy-save prints; None: it is not there.

    A table that only accepts does nothing.
    """
    if rules is None:
        return {LEGACY: {f"table {name}": () for name in names.split()}}
    lines = [line.strip() for line in rules.splitlines()]
    chains = [line.split(" ") for line in lines if line.startswith(":")]
    found = [f"policy {name[1:]} {policy}" for name, policy, *_ in chains if policy not in ("ACCEPT", "-")]
    return {LEGACY: dict.fromkeys([*found, *(line for line in lines if line.startswith("-"))], ())}


def of_xfrm(policies: str, defaults: str) -> Sections:
    """Read `ip xfrm policy` and `ip xfrm policy getdefault`; what a socket asked for takes no forwarded packet."""
    found: list[str] = []
    for line in policies.splitlines():
        if not line[:1].isspace():
            found.append(line.strip())
        elif found and line.strip().startswith(("dir", "socket")):
            found[-1] += f" {line.strip()}"
    found = [each for each in found if " socket " not in f" {each} "]
    lines = (line.strip() for line in defaults.splitlines() if ":" in line)
    return {POLICIES: dict.fromkeys([*found, *(line for line in lines if line.endswith("block"))], ())}


def planned(switch: SwitchView, port_name: PortName, found: Sections) -> Sections:
    """Return the state that a switch should have, for the sections of a dump."""
    names = port_names(switch.layout, port_name)
    neighbours = found.get(NEIGHBOURS, {})
    every: Sections = {
        RULES: {f"from all {each}": ("",) for each in _UNICAST},
        PORTS: {
            name: {
                _MAC: switch.port_macs[number],
                _MTU: str(switch.options.mtu),
                _ADDRESS: _planned_address(switch, number),
                _STATE: "up",
                _MASTER: "none",
            }
            for number, name in names.items()
        },
        NEIGHBOURS: {
            key: {_MAC: switch.peer_mac(port)} for port, key in _neighbours(switch, names) if key in neighbours
        },
        SETTINGS: batch(SETTINGS)(sysctls(switch.layout, port_name)).get(SETTINGS, {}),
        **{key: {} for key in (FILTERS, queues.QUEUES, queues.FILTERS, UNUSUAL, LEGACY, POLICIES)},
    }
    return {section: rows for section, rows in every.items() if section in found}


def comparable(switch: SwitchView, port_name: PortName, found: Sections) -> Sections:
    """Return a dump's sections as items to compare with `planned`; what no packet of the fabric meets is left out."""
    names = port_names(switch.layout, port_name)
    shown: Sections = {}
    if RULES in found:
        shown[RULES] = dict.fromkeys(_rules(switch, frozenset(names.values()), found[RULES]), ("",))
    if PORTS in found:
        here = found[PORTS]
        shown[PORTS] = {
            name: _port(_planned_address(switch, number), here[name]) for number, name in names.items() if name in here
        }
    if NEIGHBOURS in found:
        rows = found[NEIGHBOURS]
        shown[NEIGHBOURS] = {key: {_MAC: _lladdr(rows[key])} for _, key in _neighbours(switch, names) if key in rows}
    if SETTINGS in found:
        wanted = planned(switch, port_name, {SETTINGS: {}})[SETTINGS]
        shown[SETTINGS] = {key: value for key, value in found[SETTINGS].items() if key in wanted}
    if FILTERS in found:
        shown[FILTERS] = {stop.what: tuple(sorted(stop.ports)) for stop in _stops(switch, names, found)}
    settings = {port_name(port): port.settings for port in switch.layout.ports}
    for section, items in ((queues.QUEUES, queues.stops), (queues.FILTERS, queues.filter_stops)):
        if section in found:
            shown[section] = {f"{port}: {what}": ("",) for port, what in items(settings, found)}
    shown |= {section: found[section] for section in (UNUSUAL, LEGACY, POLICIES) if section in found}
    return shown


def obstacles(switch: SwitchView, names: Mapping[str, int], found: Sections) -> Obstacles:
    """Yield (port, why it does not forward as planned); port None stands for all."""
    if RULES in found:
        yield from _rule_obstacles(switch, frozenset(names), found[RULES])
    if PORTS in found:
        yield from _port_obstacles(switch, names, found[PORTS])
    if SETTINGS in found and found[SETTINGS].get(_FORWARDING) != ("1",):
        yield None, "forwarding is off"
    for key, (value,) in found.get(UNUSUAL, {}).items():
        port = next((name for name in names if f".{name}." in key), None)
        yield port, f"a sysctl may stop its packets: {key} = {value}"
    for section, said in ((LEGACY, "ip6tables-legacy"), (POLICIES, "XFRM")):
        yield from ((None, f"{said} may stop its packets: {what}") for what in found.get(section, {}))
    numbers = {number: name for name, number in names.items()}
    for number, key in _neighbours(switch, numbers):
        row = found.get(NEIGHBOURS, {}).get(key)
        if row is not None and _lladdr(row) != switch.peer_mac(number):
            yield numbers[number], f"its neighbour is at {_lladdr(row)}"
    for stop in _stops(switch, numbers, found):
        why = f"nftables may stop its packets: {stop.what}"
        yield from ((name, why) for name in sorted(stop.ports)) if stop.ports else [(None, why)]
    settings = {name: switch.layout.by_number[number].settings for name, number in names.items()}
    for name, item in [*queues.stops(settings, found), *queues.filter_stops(settings, found)]:
        yield name, f"tc may stop its packets: {item}"


def not_read(found: Sections) -> list[str]:
    """Return what a switch may have that no dump shows, and what a dump has whose effect is unknown."""
    unread = [said for section, said in SECTIONS.items() if section not in found]
    return unread + (["programs of the lab's ports"] if queues.has_lab_programs(found) else [])


def _lladdr(row: Row) -> str:
    """Return the address of a neighbour, or that it does not answer."""
    return str(row.get("lladdr", "no address")) if "FAILED" not in row.get("state", ()) else "no address"


def _neighbours(switch: SwitchView, names: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yield (port, key) of every neighbour that routes lead to."""
    topology = switch.plan.topology
    for port, name in names.items():
        yield port, f"{switch.peer_addresses[port]} {name}"
        if switch.facing[port][0] < topology.nics:
            yield port, f"{switch.peer_identity(port)} {name}"


def _stops(switch: SwitchView, names: Mapping[int, str], found: Sections) -> list[nftables.FilterStop]:
    ruleset = nftables.ruleset_of(found.get(FILTERS, {}).get("ruleset", ()))
    sees_own = found.get(SETTINGS, {}).get(HOOKS_OF_TUNNELS) == ("1",)
    return nftables.stops(ruleset, frozenset(names.values()), switch.block, sees_own)


def _planned_address(switch: SwitchView, port: int) -> str:
    return switch.port_addresses[port].partition("/")[0]


def _port(planned_address: str, row: Mapping[str, Any]) -> Row:
    scope = "link" if planned_address.startswith("fe80:") else "global"
    own = [str(each.get("local")) for each in row.get("addr_info", ()) if each.get("scope") == scope]
    return {
        _MAC: str(row.get("address")),
        _MTU: str(row.get("mtu")),
        _ADDRESS: planned_address if planned_address in own else ", ".join(own) or "absent",
        _STATE: _state(row),
        _MASTER: str(row.get("master", "none")),
    }


def _state(row: Mapping[str, Any]) -> str:
    flags = row.get("flags", ())
    if {"NOARP", "DORMANT"} & set(flags):
        return "without neighbours" if "NOARP" in flags else "dormant"
    return "down" if "UP" not in flags else "no carrier" if "NO-CARRIER" in flags else "up"


def _takes_from(other: Mapping[str, Any], port: str) -> bool:
    """Whether another interface stands on a port and may take packets without a tag: not a VLAN, not a veth pair."""
    kind = other.get("linkinfo", {}).get("info_kind", "")
    return other.get("link") == port and kind not in ("vlan", "veth", "")


def _port_obstacles(switch: SwitchView, names: Mapping[str, int], rows: Mapping[str, Any]) -> Obstacles:
    for name, number in names.items():
        if name not in rows:
            yield name, f"there is no port {name}"
            continue
        planned_address = _planned_address(switch, number)
        row, port = rows[name], _port(planned_address, rows[name])
        if port[_MASTER] != "none":
            kind = row.get("linkinfo", {}).get("info_slave_kind", "")
            yield name, f"port {name} is a member of {port[_MASTER]}{f' ({kind})' if kind else ''}"
        elif port[_STATE] != "up" or port[_MAC] != switch.port_macs[number] or mtu_too_small(port[_MTU]):
            yield name, f"port {name} is not up with its MAC and MTU"
        elif "xdp" in row:
            yield name, f"port {name} has a program of XDP"
        elif above := [str(other.get("ifname")) for other in rows.values() if _takes_from(other, name)]:
            yield name, f"{', '.join(above)} may take packets from port {name}"
        elif port[_ADDRESS] != planned_address:
            yield name, f"port {name} has not the address {planned_address}"


def _rules(switch: SwitchView, ports: frozenset[str], rows: Mapping[str, Any]) -> list[str]:
    """Return the rules of the local and the main table, and what a packet of the fabric may meet before the latter."""
    found: list[str] = []
    for row in rows.values():
        text = _text(row)
        if text.removeprefix("from all ") in _UNICAST:
            found.append(text)
        elif "from all lookup main" not in found and _is_met(switch, ports, row):
            found.append(f"{row.get('priority')}: {text}")
    return found


def _rule_obstacles(switch: SwitchView, ports: frozenset[str], rows: Mapping[str, Any]) -> Obstacles:
    found = _rules(switch, ports, rows)
    for text in found:
        if text.removeprefix("from all ") not in _UNICAST:
            yield None, f"an ip rule comes before the routes: {text}"
    if f"from all {_UNICAST[-1]}" not in found:
        yield None, "no ip rule looks up the main table"


def _is_met(switch: SwitchView, ports: frozenset[str], row: Row) -> bool:
    """Whether a rule may take a forwarded packet of the fabric to anything but the main table."""
    if "not" in row:
        return True
    to = f"{row['dst']}/{row.get('dstlen', 128)}" if "dst" in row else ""
    elsewhere = (to and not in_blocks(switch)(to)) or "oif" in row or row.get("iif", next(iter(ports), "")) not in ports
    same = row.get("table") in ("local", "main") and "suppress_prefixlen" not in row and "suppress_ifgroup" not in row
    other = str(row.get("ipproto", "udp")) not in ("udp", "17", "ipv6", "41")
    return not (elsewhere or same or other or "l3mdev" in row)


def _text(row: Row) -> str:
    """Write a rule much as `ip rule` does."""
    words = ["not"] if "not" in row else []
    words.append(f"from {_prefix(row, 'src')}")
    words += [f"to {_prefix(row, 'dst')}"] if "dst" in row else []
    known = ("priority", "not", "src", "srclen", "dst", "dstlen", "table", "action", "goto", "l3mdev", "protocol")
    words += [f"{key} {value}" for key, value in row.items() if key not in known]
    words += [f"lookup {row['table']}"] if "table" in row else []
    words += [str(row["action"])] if "action" in row else []
    words += [f"goto {row['goto']}"] if "goto" in row else []
    return " ".join(words)


def _prefix(row: Row, key: str) -> str:
    length = row.get(f"{key}len")
    return str(row[key]) if length is None else f"{row[key]}/{length}"
