"""What a running kernel does with packets beside its routes, from JSON of iproute2 and nft.

  ip -6 -j rule show                  rules that come before the main table, where the routes are (ip-rule(8))
  ip -j -d address show               ports: master, MAC, MTU, carrier, link-local address (ip-address(8))
  ip -6 -j neigh show nud permanent   static neighbours (ip-neighbour(8))
  nft -j list ruleset                 packet filters (`nftables`)

A namespace of this machine also shows its sysctls and tc filters. A dump is known by its content, an empty one by its
file's name. What may keep a packet from its route is named with the ports that it takes out of service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from openmrc.fabric.export.systems.kernel import sysctls
from openmrc.fabric.export.view import PortName, SwitchView
from openmrc.fabric.readback import nftables
from openmrc.fabric.readback.dump import Row, Sections
from openmrc.fabric.readback.forwarding import in_blocks, mtu_too_small
from openmrc.fabric.readback.lines import batch

RULES, PORTS, NEIGHBOURS, FILTERS = "ip rule", "port", "neighbour", "nftables"
SETTINGS, QUEUES, LEGACY, POLICIES = "running sysctl", "tc filter", "ip6tables", "ip xfrm policy"
SECTIONS = {  # what each shows
    RULES: "ip rules", PORTS: "masters, MACs, MTUs and carriers of ports", NEIGHBOURS: "static neighbours",
    FILTERS: "filters of nftables", QUEUES: "filters of tc", SETTINGS: "sysctls", LEGACY: "filters of ip6tables-legacy",
    POLICIES: "policies of XFRM",
}  # fmt: skip
_EMPTY = {"rule": RULES, "addr": PORTS, "link": PORTS, "neigh": NEIGHBOURS}  # begins of words in a file's name
_UNICAST = ("lookup local", "lookup main")
_FORWARDING = "net.ipv6.conf.all.forwarding"
_REDIRECTS = ("mirred", "nat", "pedit", "police", "ife", "mpls", "vlan", "tunnel_key")
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
    if "lladdr" in rows[0]:
        return {NEIGHBOURS: {f"{row.get('dst')} {row.get('dev')}": row for row in rows if _is_static(row)}}
    return None


def of_namespace(settings: str, filters: Mapping[str, Any], legacy: str, policies: str) -> Sections:
    """Return the sections that only a namespace shows; `filters` by port and direction."""
    return {
        SETTINGS: batch(SETTINGS)(settings).get(SETTINGS, {}),
        QUEUES: dict(filters),
        LEGACY: dict.fromkeys(legacy.split(), ()),
        POLICIES: {"policies": ()} if policies.strip() else {},
    }


def _is_static(row: Row) -> bool:
    return bool({"PERMANENT", "NOARP"} & set(row.get("state", ())))


def planned(switch: SwitchView, port_name: PortName, found: Sections) -> Sections:
    """Return the state that a switch should have, for the sections of a dump."""
    names = {port.number: port_name(port) for port in switch.layout.ports}
    neighbours = found.get(NEIGHBOURS, {})
    every: Sections = {
        RULES: {f"from all {each}": ("",) for each in _UNICAST},
        PORTS: {
            name: {
                _MAC: switch.mac, _MTU: str(switch.options.mtu), _ADDRESS: switch.address, _STATE: "up",
                _MASTER: "none",
            }
            for name in names.values()
        },
        NEIGHBOURS: {
            key: {_MAC: switch.peer_mac(port)} for port, key in _neighbours(switch, names) if key in neighbours
        },
        SETTINGS: batch(SETTINGS)(sysctls(switch.layout, port_name)).get(SETTINGS, {}),
        FILTERS: {}, QUEUES: {},
    }  # fmt: skip
    return {section: rows for section, rows in every.items() if section in found}


def comparable(switch: SwitchView, port_name: PortName, found: Sections) -> Sections:
    """Return a dump's sections as items to compare with `planned`; what no packet of the fabric meets is left out."""
    names = {port.number: port_name(port) for port in switch.layout.ports}
    shown: Sections = {}
    if RULES in found:
        shown[RULES] = dict.fromkeys(_rules(switch, frozenset(names.values()), found[RULES]), ("",))
    if PORTS in found:
        here = found[PORTS]
        shown[PORTS] = {name: _port(switch, here[name]) for name in names.values() if name in here}
    if NEIGHBOURS in found:
        rows = found[NEIGHBOURS]
        shown[NEIGHBOURS] = {
            key: {_MAC: str(rows[key].get("lladdr"))} for _, key in _neighbours(switch, names) if key in rows
        }
    if SETTINGS in found:
        wanted = planned(switch, port_name, {SETTINGS: {}})[SETTINGS]
        shown[SETTINGS] = {key: value for key, value in found[SETTINGS].items() if key in wanted}
    if FILTERS in found:
        shown[FILTERS] = {stop.what: tuple(sorted(stop.ports)) for stop in _stops(switch, names, found)}
    if QUEUES in found:
        shown[QUEUES] = {item: ("",) for _, item in _queues(found)}
    return shown


def obstacles(switch: SwitchView, names: Mapping[str, int], found: Sections) -> Iterator[tuple[str | None, str]]:
    """Yield (port, why it does not forward as planned); port None stands for all."""
    if RULES in found:
        yield from _rule_obstacles(switch, frozenset(names), found[RULES])
    if PORTS in found:
        yield from _port_obstacles(switch, names, found[PORTS])
    if SETTINGS in found and found[SETTINGS].get(_FORWARDING) != ("1",):
        yield None, "forwarding is off"
    numbers = {number: name for name, number in names.items()}
    for port, key in _neighbours(switch, numbers):
        lladdr = found.get(NEIGHBOURS, {}).get(key, {}).get("lladdr", switch.peer_mac(port))
        if lladdr != switch.peer_mac(port):
            yield numbers[port], f"its neighbour is pinned to {lladdr}"
    for stop in _stops(switch, numbers, found):
        why = f"nftables may stop its packets: {stop.what}"
        yield from ((name, why) for name in sorted(stop.ports)) if stop.ports else [(None, why)]
    for name, item in _queues(found):
        if name in names:
            yield name, f"tc may stop its packets: {item}"


def not_read(found: Sections) -> list[str]:
    """Return what a switch may have that no dump shows, and what a dump has whose effect is unknown."""
    unread = [said for section, said in SECTIONS.items() if section not in found]
    unread += [f"ip6tables-legacy: table {name}" for name in found.get(LEGACY, {})]
    unread += ["policies of XFRM" for _ in found.get(POLICIES, {})]
    own = nftables.own_chains(nftables.ruleset_of(found.get(FILTERS, {}).get("ruleset", ())))
    unread += [f"nftables chain {chain}: may stop neighbour discovery" for chain in own]
    programs = [where for where, rows in found.get(QUEUES, {}).items() if any(_is_program(row) for row in rows)]
    programs += [f"{name} xdp" for name, row in found.get(PORTS, {}).items() if "xdp" in row]
    return unread + ([f"BPF programs at {', '.join(sorted(programs))}"] if programs else [])


def _neighbours(switch: SwitchView, names: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yield (port, key) of every neighbour that routes lead to."""
    topology = switch.plan.topology
    for port, name in names.items():
        yield port, f"{switch.peer_address(port)} {name}"
        if switch.facing[port][0] < topology.nics:
            yield port, f"{switch.peer_identity(port)} {name}"


def _stops(switch: SwitchView, names: Mapping[int, str], found: Sections) -> list[nftables.FilterStop]:
    ruleset = nftables.ruleset_of(found.get(FILTERS, {}).get("ruleset", ()))
    return nftables.stops(ruleset, frozenset(names.values()), switch.block)


def _port(switch: SwitchView, row: Mapping[str, Any]) -> Row:
    own = [str(each.get("local")) for each in row.get("addr_info", ()) if each.get("scope") == "link"]
    return {
        _MAC: str(row.get("address")), _MTU: str(row.get("mtu")),
        _ADDRESS: switch.address if switch.address in own else ", ".join(own) or "absent",
        _STATE: _state(row), _MASTER: str(row.get("master", "none")),
    }  # fmt: skip


def _state(row: Mapping[str, Any]) -> str:
    flags = row.get("flags", ())
    return "down" if "UP" not in flags else "no carrier" if "NO-CARRIER" in flags else "up"


def _port_obstacles(
    switch: SwitchView, names: Mapping[str, int], rows: Mapping[str, Any]
) -> Iterator[tuple[str | None, str]]:
    for name in names:
        if name not in rows:
            yield name, f"there is no port {name}"
            continue
        row, port = rows[name], _port(switch, rows[name])
        if port[_MASTER] != "none":
            kind = row.get("linkinfo", {}).get("info_slave_kind", "")
            yield name, f"port {name} is a member of {port[_MASTER]}{f' ({kind})' if kind else ''}"
        elif port[_STATE] != "up" or port[_MAC] != switch.mac or mtu_too_small(port[_MTU]):
            yield name, f"port {name} is not up with its MAC and MTU"
        elif port[_ADDRESS] != switch.address:
            yield name, f"port {name} has not the address {switch.address}"


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


def _rule_obstacles(
    switch: SwitchView, ports: frozenset[str], rows: Mapping[str, Any]
) -> Iterator[tuple[str | None, str]]:
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


def _queues(found: Sections) -> Iterator[tuple[str, str]]:
    """Yield (port, filter) of filters that drop or redirect; those that choose a class do neither."""
    for where, rows in found.get(QUEUES, {}).items():
        for row in rows:
            for action in row.get("options", {}).get("actions", ()) if isinstance(row, dict) else ():
                kind, control = str(action.get("kind")), action.get("control_action", {}).get("type", "")
                if kind in _REDIRECTS or control in ("drop", "shot", "stolen", "trap"):
                    yield where.split(" ")[0], f"{where} {row.get('kind')} pref {row.get('pref')} {kind} {control}"


def _is_program(row: Any) -> bool:
    return isinstance(row, dict) and row.get("kind") == "bpf"
