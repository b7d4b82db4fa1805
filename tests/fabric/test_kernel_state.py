"""What a running kernel has beside routes: rules, masters, neighbours and packet filters, and what a proof makes of it.

The JSON is what iproute2 6.1 and nft 1.0.6 print, shortened.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import write_all
from openmrc.fabric.export.view import linux_port, view
from openmrc.fabric.proof.diff import Installed, not_checked, read_folder, tables_of
from openmrc.fabric.proof.verify import Verdict, verify
from openmrc.fabric.readback import kernel_state, queues
from openmrc.fabric.readback.nftables import ruleset_of, stops
from openmrc.lab.switch_state import unusual_settings
from tests.fabric.shown import shown_routes
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
        {"metainfo": {"json_schema_version": 1}},
        {"table": {"family": family, "name": "t"}},
        {"chain": base},
        {"chain": {**key, "name": "other"}},
        {"set": {**key, "name": "own", "type": "ifname", "elem": ["p0", {"elem": {"val": "p1", "timeout": 9}}]}},
        {"set": {**key, "name": "grows", "type": "ipv6_addr", "flags": ["dynamic"]}},
        {"rule": {**key, "chain": "other", "expr": [BLOCK, DROP]}},
        *({"rule": {**key, "chain": "c", "expr": rule}} for rule in rules),
    ]


def stopped(objects: list[Json]) -> list[list[str]]:
    return [sorted(stop.ports) for stop in stops(ruleset_of(objects), PORTS, SWITCH.block)]


@pytest.mark.parametrize(
    ("rule", "ports"),
    [
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
        ([{"mangle": {"key": {"meta": {"key": "pkttype"}}, "value": "other"}}], [[]]),  # which is not forwarded
        ([{"mangle": {"key": {"payload": {"protocol": "ip6", "field": "hoplimit"}}, "value": 1}}], [[]]),
        ([{"mangle": {"key": {"payload": {"base": "nh", "offset": 1600, "len": 16}}, "value": 57005}}], [[]]),
        ([{"flow": {"op": "add", "flowtable": "@f"}}], [[]]),
        ([{"xt": None}], [[]]),  # a target of iptables that nft does not know
        ([COUNTER, {"log": None}], []),
    ],
)
def test_a_rule_stops_packets_if_one_to_a_usid_may_meet_it(rule: list[Json], ports: list[list[str]]) -> None:
    assert stopped(ruleset(rule)) == ports


def test_what_is_accepted_before_is_not_dropped_behind() -> None:
    accept: Json = {"accept": None}
    assert stopped(ruleset([BLOCK, accept], [DROP], policy="drop")) == []
    assert stopped(ruleset([meta("iifname", "p0"), BLOCK, accept], policy="drop")) == [[]]
    assert stopped(ruleset([BLOCK, {"return": None}], policy="drop")) == [[]]
    assert stopped(ruleset(policy="drop", hook="input")) == [[]]  # so ports lose their neighbours
    nd = {"set": ["nd-neighbor-solicit", "nd-neighbor-advert"]}
    assert stopped(ruleset([payload("icmpv6", "type", nd), accept], policy="drop", hook="input")) == []
    assert stopped(ruleset([meta("l4proto", "ipv6-icmp"), accept], policy="drop", hook="output")) == []
    assert stopped(ruleset([payload("tcp", "dport", 22), DROP], hook="input")) == []
    assert stopped(ruleset([payload("icmpv6", "type", "nd-neighbor-solicit"), DROP], hook="prerouting")) == [[]]
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
            "ifname": linux_port(port),
            "flags": ["BROADCAST", "UP", "LOWER_UP"],
            "mtu": 9000,
            "address": switch.mac,
            "linkinfo": {"info_kind": "veth"},
            "addr_info": [{"family": "inet6", "local": switch.address, "prefixlen": 64, "scope": "link"}],
        }
        for port in switch.layout.ports
    ]
    return {
        "address.json": ports,
        "neigh.json": [],
        "nft.json": {"nftables": ruleset([COUNTER])},
        "rules.json": RULES,
        "routes.json": shown_routes(switch),
    }


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
    assert what == (
        "running kernel: the local table, queues, filters of tc, sysctls, filters of ip6tables-legacy, XFRM, "
        "BPF of tcx and netfilter"
    )


def port_with(**fields: Any) -> dict[str, Any]:
    rows = state_of(SWITCH)["address.json"]
    return {"address.json": [{**row, **fields} if row["ifname"] == "p0" else row for row in rows]}


VIA = {"dst": SWITCH.peer_addresses[0], "dev": "p0", "state": ["PERMANENT"]}


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
     f"neighbour {VIA['dst']} p0: MAC 02:00:00:00:00:99", "its neighbour is at 02:00:00:00:00:99"),
])  # fmt: skip
def test_what_keeps_a_packet_from_its_route_is_a_difference_and_not_proven(
    damage: dict[str, Any], extra: str, why: str, tmp_path: Path
) -> None:
    found, verdict = proven(tmp_path, damage)
    (differs,) = [each.difference for each in found if not each.difference.clean]
    assert (differs.switch, [*differs.extra, *(pair["installed"] for pair in differs.wrong)]) == (SWITCH.name, [extra])
    assert not verdict.proven
    assert {line.partition(": ")[2] for each in found for line in each.dead} == {why}


@pytest.mark.parametrize(
    "rule",
    [
        {"dst": "2001:db8::", "dstlen": 32, "action": "blackhole"},
        {"oif": "p0", "table": "5"},
        {"iif": "eth0", "table": "5"},
        {"ipproto": "tcp", "dport": 22, "table": "5"},
        {"table": "main"},
        {"l3mdev": None},
    ],
)
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
    assert any(
        what.endswith(f"({len(found) - 1} of {len(found)} switches)")
        for what in not_checked([each.difference for each in found])
    )


def routes_with(*more: Json, **fields: Any) -> dict[str, Any]:
    """Return the routes with fields added to the first that leads to a neighbour, and more routes."""
    rows = state_of(SWITCH)["routes.json"]
    first = next(at for at, row in enumerate(rows) if "gateway" in row)
    return {"routes.json": [*(row | (fields if at == first else {}) for at, row in enumerate(rows)), *more]}


PREFIX, VIA_OTHER, OTHER_PORT = SWITCH.routes[0][0], SWITCH.routes[1][1], SWITCH.routes[1][2]
LONGER = PREFIX.replace("::/48", ":1001::/64")


@pytest.mark.parametrize("damage", [
    routes_with(encap="seg6", mode="encap", segs=["fcbb:bb00:2000::"]),
    routes_with(metrics=[{"mtu": 1280}]),
    routes_with(expires=99),
    routes_with({"dst": LONGER, "nhid": 7}),  # of a nexthop object that is not shown
    routes_with(flags=["linkdown"]),
    routes_with({"dst": PREFIX, "from": "2001:db8::/64", "gateway": SWITCH.routes[0][1], "dev": "p0"}),
    *(routes_with({"type": kind, "dst": LONGER}) for kind in ("blackhole", "throw", "unreachable", "prohibit")),
    routes_with({"dst": LONGER, "gateway": VIA_OTHER, "dev": f"p{OTHER_PORT}"}),
    routes_with({"type": "blackhole", "dst": "fe80::/10"}),
    port_with(xdp={"mode": 1}),
    port_with(flags=["BROADCAST", "UP", "NOARP"]),
    {"address.json": [*state_of(SWITCH)["address.json"],
                      {"ifname": "other", "link": "p0", "linkinfo": {"info_kind": "macvlan"}}]},
    {"neigh.json": [{"dst": SWITCH.peer_addresses[0], "dev": "p0", "state": ["FAILED"]}]},
])  # fmt: skip
def test_what_is_not_understood_is_not_proven(damage: dict[str, Any], tmp_path: Path) -> None:
    found, verdict = proven(tmp_path, damage)
    assert not verdict.proven
    assert not all(each.difference.clean for each in found) or "link" in str(damage) or "fe80::/10" in str(damage)


@pytest.mark.parametrize(
    "damage",
    [
        routes_with({"dst": "2001:db8::/32", "type": "blackhole"}),
        routes_with({"dst": "fcbb:bb00:7777::/48", "type": "blackhole"}),  # no packet has this uSID on top here
        routes_with({"dst": f"{SWITCH.loopback}/128", "dev": "lo"}),
        routes_with(flags=["onlink"], protocol="static", metric=5),
        port_with(promiscuity=1),
    ],
)
def test_what_no_packet_meets_leaves_the_proof(damage: dict[str, Any], tmp_path: Path) -> None:
    assert proven(tmp_path, damage)[1].proven


def why(found: dict[str, Any], port: str = "p0") -> list[str]:
    """Return why a port, or all, may stop packets."""
    return [text for name, text in kernel_state.obstacles(SWITCH, {"p0": 0, "p1": 1}, found) if name in (None, port)]


@pytest.mark.parametrize(("policies", "defaults", "whys"), [
    ("", "Default policies:\n in:  accept\n fwd: accept\n out: accept\n", []),
    ("src ::/0 dst fcbb:bb00::/32 \n\tdir fwd action block priority 0 \n", "",
     ["src ::/0 dst fcbb:bb00::/32 dir fwd action block priority 0"]),
    ("", "Default policies:\n in:  accept\n fwd: block\n out: accept\n", ["fwd: block"]),
    ("src ::/0 dst ::/0 \n\tsocket in priority 0 \n", "", []),
])  # fmt: skip
def test_policies_of_xfrm_may_stop_packets(policies: str, defaults: str, whys: list[str]) -> None:
    found = kernel_state.of_xfrm(policies, defaults)
    assert why(found) == [f"XFRM may stop its packets: {each}" for each in whys]


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        (None, 1),  # a table whose rules nobody could read
        ("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n", 0),
        ("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -j DROP\nCOMMIT\n", 2),
    ],
)
def test_rules_of_legacy_tables_may_stop_packets(rules: str | None, count: int) -> None:
    assert len(why(kernel_state.of_legacy("filter\n", rules))) == count
    assert why(kernel_state.of_legacy("", None)) == []


CLASS = "class htb 1:20 parent 1:1 leaf 20: prio 1 rate {} ceil {} burst 16000b cburst 16000b"
RATE = f"{SWITCH.layout.by_number[0].settings.rate // 10**6}Mbit"
BUFFER = SWITCH.layout.by_number[0].settings.drop_above


@pytest.mark.parametrize(
    ("queues_of_p0", "classes", "is_stopped"),
    [
        ([{"kind": "htb", "handle": "1:", "options": {}}], CLASS.format(RATE, RATE), False),
        ([{"kind": "htb", "handle": "1:", "options": {}}], CLASS.format("8bit", RATE), True),
        ([{"kind": "htb", "handle": "1:", "options": {}}], CLASS.format("8Kbit", "8Kbit"), True),
        ([{"kind": "noqueue", "options": {}}], "", False),
        ([{"kind": "bfifo", "options": {"limit": BUFFER}}], "", False),
        ([{"kind": "bfifo", "options": {"limit": BUFFER - 1}}], "", True),
        ([{"kind": "pfifo", "options": {"limit": 1}}], "", True),
        ([{"kind": "netem", "options": {"limit": 1000}}], "", True),
        ([{"kind": "tbf", "options": {"rate": 1000}}], "", True),
        ([{"kind": "red", "options": {"limit": BUFFER, "min": BUFFER, "ecn": True}}], "", False),
        ([{"kind": "red", "options": {"limit": BUFFER, "min": BUFFER}}], "", True),  # drops where it should mark
        ([{"kind": "ingress", "ingress_block": 1, "options": {}}], "", True),
        ([{"kind": "something", "options": {}}], "", True),
    ],
)
def test_a_queue_stops_packets_if_it_is_smaller_or_slower_than_planned_or_not_known(
    queues_of_p0: list[Json], classes: str, is_stopped: bool
) -> None:
    found = queues.of_tc([{"dev": "p0", **row} for row in queues_of_p0], f"# p0\n{classes}\n", {})
    assert bool(why(found)) == is_stopped
    assert why(found, "p1") == []


def action(kind: str, control: str) -> list[Json]:
    options = {"actions": [{"kind": kind, "control_action": {"type": control}}]}
    return [{"kind": "matchall", "pref": 9}, {"kind": "matchall", "pref": 9, "options": options}]


@pytest.mark.parametrize(
    ("rows", "is_stopped"),
    [
        ([{"kind": "u32", "options": {"flowid": "1:10"}}], False),
        (action("gact", "pass"), False),
        (action("gact", "drop"), True),
        (action("mirred", "stolen"), True),
        (action("skbedit", "pipe"), True),
        (action("police", "pipe"), True),
        ([{"kind": "bpf", "options": {"bpf_name": "other.o"}}], True),
        ([{"kind": "bpf", "options": {"bpf_name": "openmrc-lab:[*fsobj]"}}], False),
        ([{"kind": "something", "options": {}}], True),
    ],
)
def test_a_filter_stops_packets_if_it_may_do_more_than_choose_a_class(rows: list[Json], is_stopped: bool) -> None:
    found = queues.of_tc([], "", {"p0 ingress": rows})
    assert bool(why(found)) == is_stopped


def test_forwarding_that_is_off_is_named() -> None:
    assert why(kernel_state.of_settings("net.ipv6.conf.all.forwarding = 0")) == ["forwarding is off"]


def test_sysctls_that_differ_from_an_untouched_kernel_s_count_unless_they_touch_no_packet() -> None:
    defaults = {"net.ipv6.conf.default.disable_ipv6": "0", "net.ipv6.neigh.lo.mcast_solicit": "3"}
    same = {
        "net.ipv6.conf.p0.disable_ipv6": "0",
        "net.ipv6.neigh.p0.mcast_solicit": "3",
        "net.ipv6.conf.p0.mtu": "9000",
    }
    assert unusual_settings(same, defaults) == {}
    assert unusual_settings(dict.fromkeys(same, "1"), defaults) == dict.fromkeys(same, ("1",))
    assert why({kernel_state.UNUSUAL: {"net.ipv6.conf.p1.mtu": ("1280",)}}) == []  # p0 is another port


def test_a_switch_s_own_chains_see_what_a_usid_is_taken_from_if_its_kernel_is_told_so() -> None:
    own = {kernel_state.FILTERS: {"ruleset": ruleset([payload("udp", "dport", 4791), DROP], hook="input")}}
    told = kernel_state.of_settings(f"net.ipv6.conf.all.forwarding = 1\n{kernel_state.HOOKS_OF_TUNNELS} = 1")
    assert why(own) == []
    assert len(why(own | told)) == 1
