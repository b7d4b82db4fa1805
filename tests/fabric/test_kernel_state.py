"""What a running kernel has beside routes: rules, masters, neighbours and packet filters, and what a proof makes of it.

The JSON is what iproute2 6.1 and nft 1.0.6 print, shortened.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from openmrc.fabric.export.bulk import write_all
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import export
from openmrc.fabric.export.view import linux_port, view
from openmrc.fabric.proof.diff import Installed, not_checked, read_folder, tables_of
from openmrc.fabric.proof.verify import Verdict, verify
from openmrc.fabric.readback import kernel_state
from openmrc.fabric.readback.nftables import ruleset_of, stops
from tests.fabric.small_fabrics import plan

MADE = plan("two-tier")
SWITCH = view(MADE, MADE.topology.node_named("p0-t0-00"))
PORTS = frozenset(linux_port(port) for port in SWITCH.layout.ports)
Json = dict[str, Any]

DROP: Json = {"drop": None}
COUNTER: Json = {"counter": {"packets": 0, "bytes": 0}}
RULES: list[Json] = [
    {"priority": 0, "src": "all", "table": "local"},
    {"priority": 32766, "src": "all", "table": "main"},
]


def match(left: Json, right: Any, op: str = "==") -> Json:
    return {"match": {"op": op, "left": left, "right": right}}


def payload(protocol: str, field: str, right: Any, op: str = "==") -> Json:
    return match({"payload": {"protocol": protocol, "field": field}}, right, op)


def meta(key: str, right: Any, op: str = "==") -> Json:
    return match({"meta": {"key": key}}, right, op)


def prefix(address: str, length: int) -> Json:
    return {"prefix": {"addr": address, "len": length}}


BLOCK = payload("ip6", "daddr", prefix("fcbb:bb00::", 32))


def ruleset(*rules: list[Json], policy: str = "accept", hook: str = "forward", family: str = "ip6") -> list[Json]:
    """Return a table with a base chain of these rules, and a chain `other` that drops the block."""
    key = {"family": family, "table": "t"}
    base = {**key, "name": "c", "type": "filter", "hook": hook, "prio": 0, "policy": policy}
    return [
        {"metainfo": {"json_schema_version": 1}}, {"table": {"family": family, "name": "t"}}, {"chain": base},
        {"chain": {**key, "name": "other"}},
        {"set": {**key, "name": "own", "type": "ifname", "elem": ["p0", {"elem": {"val": "p1", "timeout": 9}}]}},
        {"set": {**key, "name": "grows", "type": "ipv6_addr", "flags": ["dynamic"]}},
        {"rule": {**key, "chain": "other", "expr": [BLOCK, DROP]}},
        *({"rule": {**key, "chain": "c", "expr": rule}} for rule in rules),
    ]  # fmt: skip


def stopped(objects: list[Json]) -> list[list[str]]:
    return [sorted(stop.ports) for stop in stops(ruleset_of(objects), PORTS, SWITCH.block)]


@pytest.mark.parametrize(("rule", "ports"), [
    ([BLOCK, COUNTER, DROP], [[]]),
    ([meta("iifname", "p0"), BLOCK, DROP], [["p0"]]),
    ([meta("oifname", {"set": ["p0", "p1", "eth0"]}), DROP], [["p0", "p1"]]),
    ([meta("iifname", "@own"), DROP], [["p0", "p1"]]),
    ([meta("iifname", "p*"), DROP], [[]]),
    ([meta("iifname", "eth0"), DROP], []),
    ([meta("iif", "eth0", "!="), DROP], [[]]),
    ([payload("ip6", "daddr", prefix("2001:db8::", 32)), DROP], []),
    ([payload("ip6", "daddr", prefix("fcbb:bb00::", 32), "!="), DROP], []),
    ([payload("ip6", "daddr", prefix("fcbb:bb00:2001::", 48), "!="), DROP], [[]]),
    ([payload("ip6", "daddr", {"set": [prefix("2001:db8::", 32), prefix("fcbb:bb00:2001::", 48)]}), DROP], [[]]),
    ([payload("ip6", "daddr", {"range": ["fcbb:baff::", "fcbb:bb00::9"]}), DROP], [[]]),
    ([payload("ip6", "daddr", {"range": ["fcbb:ba00::", "fcbb:bafe::"]}), DROP], []),
    ([payload("ip6", "daddr", "@grows"), DROP], [[]]),
    ([payload("tcp", "dport", 22), DROP], []),
    ([payload("udp", "dport", 4791), {"limit": {"rate": 10, "per": "second"}}, DROP], [[]]),
    ([payload("ip6", "nexthdr", "tcp"), DROP], []),
    ([meta("l4proto", "udp"), DROP], [[]]),
    ([meta("nfproto", "ipv4"), DROP], []),
    ([meta("protocol", "ip6", "!="), DROP], []),
    ([{"jump": {"target": "other"}}], [[]]),
    ([meta("iifname", "p0"), {"goto": {"target": "other"}}], [["p0"]]),
    ([{"vmap": {"key": {"meta": {"key": "l4proto"}}, "data": {"set": [["tcp", DROP]]}}}], []),
    ([{"vmap": {"key": {"meta": {"key": "l4proto"}}, "data": {"set": [["udp", DROP]]}}}], [[]]),
    ([BLOCK, {"dnat": {"addr": "fd00::1"}}], [[]]),
    ([{"mangle": {"key": {"payload": {"protocol": "ip6", "field": "daddr"}}, "value": "fd00::1"}}], [[]]),
    ([{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}], []),
    ([{"xt": None}], [[]]),  # a target of iptables that nft does not know
    ([COUNTER, {"log": None}], []),
])  # fmt: skip
def test_a_rule_stops_packets_if_one_to_a_usid_may_meet_it(rule: list[Json], ports: list[list[str]]) -> None:
    assert stopped(ruleset(rule)) == ports


def test_what_is_accepted_before_is_not_dropped_behind() -> None:
    accept: Json = {"accept": None}
    assert stopped(ruleset([BLOCK, accept], [DROP], policy="drop")) == []
    assert stopped(ruleset([meta("iifname", "p0"), BLOCK, accept], policy="drop")) == [[]]
    assert stopped(ruleset([BLOCK, {"return": None}], policy="drop")) == [[]]
    assert stopped(ruleset(policy="drop", hook="input")) == []
    assert stopped(ruleset([DROP], family="bridge")) == []
    assert stopped(ruleset([DROP], hook="ingress", family="netdev")) == [[]]


def test_chains_that_jump_to_each_other_many_times_are_followed_once() -> None:
    objects: list[Json] = [
        {"chain": {"family": "ip6", "table": "t", "name": "c0", "hook": "forward", "policy": "accept"}}
    ]
    for at in range(16):
        jump = {"expr": [{"jump": {"target": f"c{at + 1}"}}], "family": "ip6", "table": "t", "chain": f"c{at}"}
        objects += [{"chain": {"family": "ip6", "table": "t", "name": f"c{at + 1}"}}, *[{"rule": jump}] * 10]
    assert stops(ruleset_of(objects), frozenset(["p0"]), "fd00:1::/32") == []


def state_of(switch: Any) -> dict[str, Any]:
    """Return what a healthy switch prints, by ending of the file."""
    ports = [
        {
            "ifname": linux_port(port), "flags": ["BROADCAST", "UP", "LOWER_UP"], "mtu": 9000, "address": switch.mac,
            "linkinfo": {"info_kind": "veth"},
            "addr_info": [{"family": "inet6", "local": switch.address, "prefixlen": 64, "scope": "link"}],
        }
        for port in switch.layout.ports
    ]  # fmt: skip
    (text,) = (t for name, t in export(MADE, "linux", ExportOptions(), [switch.node]) if name.endswith("netlink.json"))
    routes = []
    for line in map(json.loads, text.splitlines()):
        route = {"dst": f"{line['RTA_DST']}/{line['dst_len']}", "dev": line.get("RTA_OIF", "lo")}
        local = {"encap": "seg6local", "action": "End", "flavors": ["next-csid"], "lblen": 32, "nflen": 16}
        more = {"gateway": line["RTA_GATEWAY"]} if "RTA_GATEWAY" in line else local
        routes.append({**route, **({"type": "blackhole"} if line.get("rtm_type") else more)})
    return {
        "address.json": ports, "neigh.json": [], "nft.json": {"nftables": ruleset([COUNTER])}, "routes.json": routes,
        "rules.json": RULES,
    }  # fmt: skip


def proven(folder: Path, damage: dict[str, Any] | None = None) -> tuple[list[Installed], Verdict]:
    """Read every switch's files; those of `damage` replace the files of p0-t0-00."""
    for node in range(MADE.topology.nics, MADE.topology.nodes):
        switch = view(MADE, node)
        files = {**state_of(switch), **(damage or {} if switch.name == SWITCH.name else {})}
        for ending, dump in files.items():
            (folder / f"{switch.name}.{ending}").write_text(json.dumps(dump))
    found = list(read_folder(MADE, folder, ExportOptions()))
    return found, verify(MADE, tables_of(MADE.topology, found))


def test_dumps_of_a_healthy_kernel_are_clean_and_proven(tmp_path: Path) -> None:
    found, verdict = proven(tmp_path)
    assert all(each.difference.clean for each in found)
    assert verdict.proven
    (what,) = not_checked([each.difference for each in found])
    assert what == "running kernel: filters of tc, sysctls, filters of ip6tables-legacy, policies of XFRM"


def port_with(**fields: Any) -> dict[str, Any]:
    rows = state_of(SWITCH)["address.json"]
    return {"address.json": [{**row, **fields} if row["ifname"] == "p0" else row for row in rows]}


VIA = {"dst": SWITCH.peer_address(0), "dev": "p0", "state": ["PERMANENT"]}


@pytest.mark.parametrize(("damage", "extra", "why"), [
    ({"rules.json": [{"priority": 9, "src": "all", "dst": "fcbb:bb00::", "dstlen": 32, "action": "blackhole"}, *RULES]},
     "ip rule 9: from all to fcbb:bb00::/32 blackhole",
     "an ip rule comes before the routes: 9: from all to fcbb:bb00::/32 blackhole"),
    ({"rules.json": [{"priority": 9, "not": None, "src": "all", "fwmark": "0x1", "table": "5"}, *RULES]},
     "ip rule 9: not from all fwmark 0x1 lookup 5",
     "an ip rule comes before the routes: 9: not from all fwmark 0x1 lookup 5"),
    ({"nft.json": {"nftables": ruleset([meta("iifname", "p0"), BLOCK, DROP])}},
     "nftables ip6 t c: iifname p0 ip6 daddr fcbb:bb00::/32 drop: p0",
     "nftables may stop its packets: ip6 t c: iifname p0 ip6 daddr fcbb:bb00::/32 drop"),
    (port_with(master="red", linkinfo={"info_slave_kind": "vrf"}),
     "port p0: master red", "port p0 is a member of red (vrf)"),
    (port_with(flags=["BROADCAST", "UP", "NO-CARRIER"]),
     "port p0: state no carrier", "port p0 is not up with its MAC and MTU"),
    (port_with(address="02:00:00:00:00:99"),
     "port p0: MAC 02:00:00:00:00:99", "port p0 is not up with its MAC and MTU"),
    ({"neigh.json": [{**VIA, "lladdr": "02:00:00:00:00:99"}]},
     f"neighbour {VIA['dst']} p0: MAC 02:00:00:00:00:99", "its neighbour is pinned to 02:00:00:00:00:99"),
])  # fmt: skip
def test_what_keeps_a_packet_from_its_route_is_a_difference_and_not_proven(
    damage: dict[str, Any], extra: str, why: str, tmp_path: Path
) -> None:
    found, verdict = proven(tmp_path, damage)
    (differs,) = [each.difference for each in found if not each.difference.clean]
    assert (differs.switch, [*differs.extra, *(pair["installed"] for pair in differs.wrong)]) == (SWITCH.name, [extra])
    assert not verdict.proven
    assert {line.partition(": ")[2] for each in found for line in each.dead} == {why}


@pytest.mark.parametrize("rule", [
    {"dst": "2001:db8::", "dstlen": 32, "action": "blackhole"},
    {"oif": "p0", "table": "5"},
    {"iif": "eth0", "table": "5"},
    {"ipproto": "tcp", "dport": 22, "table": "5"},
    {"table": "main"},
    {"l3mdev": None},
])  # fmt: skip
def test_rules_that_no_packet_of_the_fabric_meets_count_nothing(rule: Json, tmp_path: Path) -> None:
    found, verdict = proven(tmp_path, {"rules.json": [{"priority": 9, "src": "all", **rule}, *RULES]})
    assert all(each.difference.clean for each in found)
    assert verdict.proven


def test_a_kernel_that_does_not_look_up_the_main_table_forwards_nothing(tmp_path: Path) -> None:
    found, verdict = proven(tmp_path, {"rules.json": RULES[:1]})
    assert [each.difference.missing for each in found if not each.difference.clean] == [
        ["ip rule from all lookup main"]
    ]
    assert not verdict.proven


def test_state_beside_a_configuration_counts_too(tmp_path: Path) -> None:
    list(write_all(MADE, "frr", ExportOptions(), tmp_path))
    (tmp_path / f"{SWITCH.name}.nft").write_text(json.dumps({"nftables": ruleset([BLOCK, DROP])}))
    found = list(read_folder(MADE, tmp_path, ExportOptions()))
    assert not verify(MADE, tables_of(MADE.topology, found)).proven
    assert [each.difference.extra for each in found if not each.difference.clean] == [
        ["nftables ip6 t c: ip6 daddr fcbb:bb00::/32 drop"]
    ]
    assert any(what.endswith(f"({len(found) - 1} of {len(found)} switches)") for what in not_checked(
        [each.difference for each in found]
    ))  # fmt: skip


def test_chains_of_the_switch_s_own_packets_are_listed_as_not_checked() -> None:
    filters = {kernel_state.FILTERS: {"ruleset": ruleset([DROP], policy="drop", hook="input")}}
    assert list(kernel_state.obstacles(SWITCH, {"p0": 0}, filters)) == []
    assert kernel_state.not_read(filters)[-1] == "nftables chain ip6 t c: may stop neighbour discovery"


def test_programs_and_what_only_a_namespace_shows_are_read() -> None:
    filters = {"p0 egress": [{"kind": "bpf"}], "p1": [{"kind": "u32", "options": {"flowid": "1:10"}}], "p1 ingress": [
        {"kind": "u32", "pref": 9, "options": {"actions": [{"kind": "mirred", "control_action": {"type": "stolen"}}]}}
    ]}  # fmt: skip
    found = kernel_state.of_namespace(
        "net.ipv6.conf.all.forwarding = 0", filters, "filter\n", "src ::/0 dst ::/0 block"
    )
    assert list(kernel_state.obstacles(SWITCH, {"p0": 0, "p1": 1}, found)) == [
        (None, "forwarding is off"), ("p1", "tc may stop its packets: p1 ingress u32 pref 9 mirred stolen"),
    ]  # fmt: skip
    assert kernel_state.not_read(found)[-3:] == [
        "ip6tables-legacy: table filter", "policies of XFRM", "BPF programs at p0 egress",
    ]  # fmt: skip
