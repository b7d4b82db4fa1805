"""Reading back: what is told of dumps and configurations that are not as planned, and what a proof makes of them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import TARGETS, export, write_all
from openmrc.fabric.export.view import view
from openmrc.fabric.proof.diff import Installed, compare, compare_folder, read_folder, tables_of
from openmrc.fabric.proof.verify import Verdict, verify
from openmrc.fabric.readback.bindings import of_sonic
from openmrc.fabric.readback.dump import Difference
from openmrc.fabric.readback.forwarding import in_blocks
from tests.fabric.shown import shown_routes
from tests.fabric.small_fabrics import SMALL, plan

MADE = plan("two-tier")
SWITCH = MADE.topology.node_named("p0-t0-00")
Tables = dict[str, Any]


def exported(target: str, ending: str = "") -> str:
    files = dict(export(MADE, target, ExportOptions(), [SWITCH]))
    return files[f"p0-t0-00.{ending}"] if ending else next(iter(files.values()))


def against(target: str, dump: str) -> Difference:
    return compare(MADE, SWITCH, target, dump, "dump", ExportOptions())


def proven(name: str, folder: Path) -> tuple[list[Installed], Verdict]:
    made = plan(name)
    found = list(read_folder(made, folder, ExportOptions()))
    return found, verify(made, tables_of(made.topology, found))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SMALL)
def test_what_was_exported_reads_back_as_planned_and_is_proven(name: str, target: str, tmp_path: Path) -> None:
    try:
        list(write_all(plan(name), target, ExportOptions(), tmp_path))
    except ConfigError:
        assert (name, target) in (("shifting-downlinks", "cumulus"), ("shifting-downlinks", "eos"))
        return
    for file in tmp_path.iterdir():
        file.write_text(file.read_text() + "\n")  # not the same bytes, so it is read
    found, verdict = proven(name, tmp_path)
    assert all(each.difference.clean for each in found)
    assert all(each.difference.same == each.difference.planned > 0 for each in found)
    assert not any(each.dead or each.silent for each in found)
    assert verdict.proven


def wrong_next_hop(tables: Tables) -> None:
    tables["STATIC_ROUTE"]["default|fcbb:bb00:2001::/48"]["nexthop"] = "fe80::bad"


def wrong_interface(tables: Tables) -> None:
    tables["STATIC_ROUTE"]["default|fcbb:bb00:e001::/48"]["ifname"] = "Ethernet0"


def blackhole(tables: Tables) -> None:
    tables["STATIC_ROUTE"]["default|fcbb:bb00:2001::/48"]["blackhole"] = "true"


def no_locators(tables: Tables) -> None:
    del tables["SRV6_MY_LOCATORS"]


def another_mac(tables: Tables) -> None:
    tables["DEVICE_METADATA"]["localhost"]["mac"] = "02:00:10:00:00:07"


def port_down(tables: Tables) -> None:
    tables["PORT"]["Ethernet5"]["admin_status"] = "down"


def short_packets(tables: Tables) -> None:
    tables["PORT"]["Ethernet5"]["mtu"] = "1500"


def no_link_local(tables: Tables) -> None:
    tables["INTERFACE"]["Ethernet5"]["ipv6_use_link_local_only"] = "disable"


def pinned_elsewhere(tables: Tables) -> None:
    tables["NEIGH"] = {"Ethernet5|fe80::20ff:fe00:1": {"neigh": "02:00:20:00:00:09", "family": "IPv6"}}


def another_vrf(tables: Tables) -> None:
    tables["STATIC_ROUTE"]["default|fcbb:bb00:2001::/48"]["nexthop-vrf"] = "Vrf1"


def in_a_vrf(tables: Tables) -> None:
    tables["INTERFACE"]["Ethernet5"]["vrf_name"] = "VrfRed"


def in_a_vlan(tables: Tables) -> None:
    tables["VLAN_MEMBER"] = {"Vlan100|Ethernet5": {"tagging_mode": "untagged"}}


def in_a_port_channel(tables: Tables) -> None:
    tables["PORTCHANNEL_MEMBER"] = {"PortChannel1|Ethernet5": {}}


def filtered(tables: Tables) -> None:
    tables["ACL_TABLE"] = {"MINE": {"type": "L3V6", "stage": "ingress", "ports": ["Ethernet5"]}}
    tables["ACL_RULE"] = {"MINE|R1": {"PRIORITY": "9", "PACKET_ACTION": "DROP", "DST_IPV6": "fcbb:bb00::/32"}}


BREAKING = (
    wrong_next_hop, wrong_interface, blackhole, no_locators, another_mac, port_down, short_packets, no_link_local,
    pinned_elsewhere, another_vrf, in_a_vrf, in_a_vlan, in_a_port_channel, filtered,
)  # fmt: skip


@pytest.mark.parametrize("damage", BREAKING)
def test_config_db_that_does_not_forward_is_told_and_not_proven(
    damage: Callable[[Tables], None], tmp_path: Path
) -> None:
    list(write_all(MADE, "sonic", ExportOptions(), tmp_path))
    path = tmp_path / "p0-t0-00.json"
    tables = json.loads(path.read_text())
    damage(tables)
    path.write_text(json.dumps(tables))
    found, verdict = proven("two-tier", tmp_path)
    assert [each.difference.switch for each in found if not each.difference.clean] == ["p0-t0-00"]
    assert not verdict.proven


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (in_a_vrf, "port Ethernet5 is in VRF VrfRed"),
        (in_a_vlan, "port Ethernet5 is a member of Vlan100"),
        (in_a_port_channel, "port Ethernet5 is a member of PortChannel1"),
        (filtered, "port Ethernet5 has the filter MINE R1, which may drop its packets"),
    ],
)
def test_a_port_that_belongs_to_something_else_is_named_as_not_working(
    damage: Callable[[Tables], None], why: str, tmp_path: Path
) -> None:
    list(write_all(MADE, "sonic", ExportOptions(), tmp_path))
    path = tmp_path / "p0-t0-00.json"
    tables = json.loads(path.read_text())
    damage(tables)
    path.write_text(json.dumps(tables))
    found, _ = proven("two-tier", tmp_path)
    assert {line.partition(": ")[2] for each in found for line in each.dead} == {why}


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        ({"PACKET_ACTION": "DROP"}, True),
        ({"PACKET_ACTION": "DROP", "DST_IPV6": "fcbb:bb01:2001::/48"}, True),
        ({"PACKET_ACTION": "DROP", "DST_IPV6": "2001:db8::/32"}, False),
        ({"PACKET_ACTION": "FORWARD", "DST_IPV6": "fcbb:bb00::/32"}, False),
        ({"PACKET_ACTION": "DROP", "IP_TYPE": "IPV4ANY"}, False),
    ],
)
def test_a_filter_counts_if_it_may_drop_a_packet_to_a_usid(rule: dict[str, str], counts: bool) -> None:
    tables = {"ACL_TABLE": {"MINE": {"type": "L3V6", "ports": "Ethernet1,Ethernet2"}}, "ACL_RULE": {"MINE|R1": rule}}
    touches = in_blocks(view(MADE, MADE.topology.nics))
    assert [port for port, _ in of_sonic(tables, touches)] == (["Ethernet1", "Ethernet2"] if counts else [])


@pytest.mark.parametrize(
    ("target", "line", "why"),
    [
        ("eos", "interface {}\n   vrf RED", "is in VRF RED"),
        ("eos", "interface {}\n   channel-group 1 mode active", "is in channel group 1 mode active"),
        ("eos", "interface {}\n   ipv6 access-group MINE in", "has the filter MINE in"),
        ("cumulus", "nv set interface {} ip vrf RED", "is in VRF RED"),
        ("cumulus", "nv set interface {} acl MINE inbound", "has the filter MINE inbound"),
        ("cumulus", "nv set interface bond1 bond member {}", "is a member of bond1"),
    ],
)
def test_bindings_are_read_from_lines_too(target: str, line: str, why: str, tmp_path: Path) -> None:
    list(write_all(MADE, target, ExportOptions(), tmp_path))
    (path,) = tmp_path.glob("p0-t0-00.*")
    name = TARGETS[target].port_name(view(MADE, SWITCH).layout.ports[0])
    path.write_text(f"{path.read_text()}\n{line.format(name)}\n")
    found, verdict = proven("two-tier", tmp_path)
    assert not verdict.proven
    assert {reason.partition(": ")[2] for each in found for reason in each.dead} == {f"{name} {why}"}
    assert [each.difference.switch for each in found if not each.difference.clean] == ["p0-t0-00"]


def test_a_route_to_a_switch_without_a_next_hop_does_not_work(tmp_path: Path) -> None:
    """It would ask the cable for the uSID itself, which is the address of nobody (RFC 4861)."""
    list(write_all(MADE, "eos", ExportOptions(), tmp_path))
    path = tmp_path / "p0-t0-00.eos"
    text, count = re.subn(r"^(ipv6 route fcbb:bb00:2000::/48 \S+) fe80\S+$", r"\1", path.read_text(), flags=re.M)
    path.write_text(text)
    found, verdict = proven("two-tier", tmp_path)
    assert count == 1
    assert [each.dead for each in found if each.dead] == [["fcbb:bb00:2000::/48 route: no next hop behind Ethernet1/5"]]
    assert not verdict.proven


@pytest.mark.parametrize(("target", "ending", "line", "why"), [
    ("linux", "links", "link set dev p0 master red", "port p0 is a member of red"),
    ("linux", "tc", "filter add dev p0 egress flower dst_ip fcbb:bb00::/32 action drop",
     "port p0 has the filter egress flower dst_ip fcbb:bb00::/32 action drop"),
    ("linux", "batch", "rule add to fcbb:bb00::/32 blackhole",
     "an ip rule comes before the routes: rule add to fcbb:bb00::/32 blackhole"),
    ("frr", "links", "link set dev p0 master bond0", "port p0 is a member of bond0"),
    ("frr", "conf", "interface p0 vrf red\nexit", "interface p0 is in VRF red"),
    ("frr", "tc", "filter add dev p0 egress bpf da obj x.o", "port p0 has the filter egress bpf da obj x.o"),
])  # fmt: skip
def test_masters_filters_and_rules_of_a_kernel_are_named_as_not_working(
    target: str, ending: str, line: str, why: str, tmp_path: Path
) -> None:
    list(write_all(MADE, target, ExportOptions(), tmp_path))
    path = tmp_path / f"p0-t0-00.{ending}"
    path.write_text(f"{path.read_text()}\n{line}\n")
    found, verdict = proven("two-tier", tmp_path)
    assert not verdict.proven
    assert {reason.partition(": ")[2] for each in found for reason in each.dead} == {why}
    assert [each.difference.switch for each in found if not each.difference.clean] == ["p0-t0-00"]


def test_one_dump_says_what_it_cannot_show() -> None:
    running = json.dumps([{"dst": "default", "gateway": "fe80::1", "dev": "eth0"}])
    (said,) = against("linux", running).unchecked
    assert said.startswith("running kernel: ip rules, the local table, masters")
    assert "routes" not in said
    assert against("sonic", running).unchecked == [
        "packet filters and VRFs of the running system: its routes were read, nothing else"
    ]
    tables = json.dumps({**json.loads(exported("sonic")), "POLICER": {"P": {}}})
    assert against("sonic", tables).unchecked == ["table POLICER"]


def test_a_file_that_the_export_does_not_have_is_listed_as_not_checked(tmp_path: Path) -> None:
    list(write_all(MADE, "sonic", ExportOptions(), tmp_path))
    (tmp_path / "p0-t0-00.nft").write_text("table ip6 filter {}\n")
    found, _ = proven("two-tier", tmp_path)
    assert {what for each in found for what in each.difference.unchecked} == {"files SWITCH.nft"}


def test_what_nobody_looks_at_is_listed(tmp_path: Path) -> None:
    list(write_all(MADE, "sonic", ExportOptions(), tmp_path))
    path = tmp_path / "p0-t0-00.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "POLICER": {"P": {}}}))
    found, verdict = proven("two-tier", tmp_path)
    assert verdict.proven
    assert {what for each in found for what in each.difference.unchecked} == {"table POLICER"}


@pytest.mark.parametrize(
    ("table", "key", "row", "said"),
    [
        (
            "STATIC_ROUTE",
            "default|FCBB:BB00:2001:0::/64",
            {"nexthop": "fe80::1"},
            "STATIC_ROUTE default|fcbb:bb00:2001::/64",
        ),
        ("SRV6_MY_LOCATORS", "OTHER", {"prefix": "fcbb:bb00:9::"}, "SRV6_MY_LOCATORS OTHER"),
        ("INTERFACE", "Ethernet3|fe80::9/64", {}, "INTERFACE Ethernet3|fe80::9/64"),
        ("VLAN_MEMBER", "Vlan2|Ethernet3", {}, "VLAN_MEMBER Vlan2|Ethernet3"),
    ],
)
def test_rows_that_nobody_planned_are_told_where_they_forward(table: str, key: str, row: Tables, said: str) -> None:
    tables = json.loads(exported("sonic"))
    tables.setdefault(table, {})[key] = row
    tables["STATIC_ROUTE"]["default|10.0.0.0/8"] = {"nexthop": "10.0.0.1"}
    tables["SYSLOG_SERVER"] = {"10.0.0.9": {}}
    found = against("sonic", json.dumps(tables))
    assert [line.partition(": ")[0] for line in found.extra] == [said]
    assert found.ignored == 2


def test_config_db_in_other_words_is_the_same() -> None:
    """Upper case, numbers and defaults, as a switch may write them."""
    tables = json.loads(exported("sonic"))
    tables["STATIC_ROUTE"] = {key.replace("fcbb:bb00", "FCBB:BB00"): row for key, row in tables["STATIC_ROUTE"].items()}
    for row in tables["STATIC_ROUTE"].values():
        row["advertise"] = "false"
    for row in tables["PORT"].values():
        row["mtu"], row["dhcp_rate_limit"] = 9000, "300"
    assert against("sonic", json.dumps(tables, indent=4)).clean


# From FRR 10.3 (trixie) and 10.7.1 (sid), shortened: `show ipv6 route json`, `show segment-routing srv6 sid json`
def frr_route(prefix: str, hop: Tables, protocol: str = "static") -> Tables:
    shown = {
        "prefix": prefix,
        "prefixLen": 48,
        "protocol": protocol,
        "vrfName": "default",
        "selected": True,
        "distance": 1,
    }
    hop = {"flags": 3, "fib": True, "afi": "ipv6", "active": True, "weight": 1, **hop}
    return {prefix: [{**shown, "installed": True, "table": 254, "nexthops": [hop]}]}


def frr_seg6local(action: str) -> Tables:
    lengths = {"blockLen": 32, "nodeLen": 16, "funcLen": 0, "argLen": 0}
    local = {"seg6local": {"action": action, "sidStructure": lengths}, "seg6localContext": {}}
    return {"directlyConnected": True, "interfaceIndex": 3, "interfaceName": "sr0", **local}


SID = {
    "fcbb:bb00:1000::": {
        "sid": "fcbb:bb00:1000::", "behavior": "uN", "context": {}, "locator": "MRC", "allocationMode": "explicit",
        "clients": [{"protocol": "static", "instance": 0}],
    }
}  # fmt: skip


@pytest.mark.parametrize("action", ["End", "uN"])
def test_frr_s_routes_are_read(action: str) -> None:
    routes = {
        **frr_route("fcbb:bb00:1000::/48", frr_seg6local(action)),
        **frr_route("fcbb:bb00:2000::/48", {"ip": "fe80::20ff:fe00:0", "interfaceName": "p4"}),
        **frr_route("fcbb:bb00:2001::/48", {"ip": "fe80::20ff:fe00:7", "interfaceName": "p5"}),
        **frr_route("fcbb:bb00:2002::/48", {"ip": "fe80::20ff:fe00:2", "interfaceName": "p6", "active": False}),
        "fe80::/64": [{"prefix": "fe80::/64", "protocol": "connected", "nexthops": []}],
    }
    found = against("frr", json.dumps(routes))
    assert found.same == 2
    assert len(found.missing) == found.planned - 4
    assert [pair["installed"] for pair in found.wrong] == [
        "route fcbb:bb00:2001::/48: via fe80::20ff:fe00:7",
        "route fcbb:bb00:2002::/48: action not installed",
        "route fcbb:bb00:2002::/48: interface absent",
        "route fcbb:bb00:2002::/48: via absent",
    ]


def test_frr_s_sids_are_read() -> None:
    assert against("frr", json.dumps(SID)).clean
    assert against("frr", json.dumps(SID)).planned == 1
    wrong = json.loads(json.dumps(SID).replace("1000::", "1001::"))
    found = against("frr", json.dumps(wrong))
    assert (found.missing, found.extra) == (
        ["sid fcbb:bb00:1000::/48: action un"],
        ["sid fcbb:bb00:1001::/48: action un"],
    )


def test_sids_that_frr_lost_are_missing_by_name() -> None:
    """FRR 18822: its running configuration without them, though its file still has them."""
    running = re.sub(r"(?m)^  static-sids\n(?:   sid .*\n)+  exit\n", "", exported("frr"))
    assert "static-sids" in exported("frr")
    found = against("frr", running)
    assert [line for line in found.missing if "static-sids sid fcbb:bb00:1000::/48" in line]


def test_a_route_that_should_be_the_switch_s_own_is_told_from_frr_s_configuration() -> None:
    text = exported("frr").replace("   sid fcbb:bb00:1000::/48 locator MRC behavior uN\n", "")
    found = against("frr", text + "ipv6 route fcbb:bb00:1000::/48 fe80::1 p0\n")
    assert found.missing == ["segment-routing / srv6 / static-sids sid fcbb:bb00:1000::/48: locator MRC behavior uN"]
    assert found.extra == ["system ipv6 route fcbb:bb00:1000::/48: fe80::1 p0"]


def test_a_prefix_routed_twice_is_wrong() -> None:
    text = exported("frr") + "ipv6 route fcbb:bb00:2000::/48 fe80::2:0 p5\n"
    (pair,) = against("frr", text).wrong
    assert pair["installed"] == "system ipv6 route fcbb:bb00:2000::/48: fe80::20ff:fe00:0 p4 and fe80::2:0 p5"


def test_a_seg6local_route_of_another_format_is_wrong() -> None:
    route = {"dst": "fcbb:bb00:1000::/48", "encap": "seg6local", "action": "End", "dev": "sr0"}
    assert "without next-csid" in against("linux", json.dumps([route])).wrong[0]["installed"]


def test_a_usid_that_a_port_could_take_away_is_wrong() -> None:
    local = {"encap": "seg6local", "action": "End", "flavors": ["next-csid"], "lblen": 32, "nflen": 16}
    found = against("linux", json.dumps([{"dst": "fcbb:bb00:1000::/48", **local, "dev": "p0"}]))
    assert found.wrong[0]["installed"] == "route fcbb:bb00:1000::/48: action un, but on p0 instead of sr0"
    assert against("linux", json.dumps([{"dst": "fcbb:bb00:1000::/48", **local, "dev": "sr0"}])).same == 1


def test_a_switch_without_a_file_and_a_file_of_another_fabric_are_told(tmp_path: Path) -> None:
    list(write_all(MADE, "frr", ExportOptions(), tmp_path))
    (tmp_path / "p0-t1-01.conf").unlink()
    for ending in ("conf", "links", "sysctl", "tc"):
        (tmp_path / f"p1-t0-02.{ending}").unlink()
    found = {each.switch: each.missing for each in compare_folder(MADE, tmp_path, ExportOptions()) if not each.clean}
    assert found["p0-t1-01"] == ["file p0-t1-01.conf"]
    assert found["p1-t0-02"] == [f"file p1-t0-02.{ending}" for ending in ("conf", "links", "sysctl", "tc")]
    (tmp_path / "p7-t0-00.conf").write_text("")
    with pytest.raises(ConfigError, match="p7-t0-00: not switches of this fabric"):
        list(compare_folder(MADE, tmp_path, ExportOptions()))


def test_routes_of_running_systems_can_be_proven(tmp_path: Path) -> None:
    """One `ip -6 -j route` a switch, as the plan has it; then one with two ports changed over."""
    for switch in range(MADE.topology.nics, MADE.topology.nodes):
        rows = shown_routes(view(MADE, switch))
        (tmp_path / f"{MADE.topology.name(switch)}.routes.json").write_text(json.dumps(rows))
    found, verdict = proven("two-tier", tmp_path)
    assert all(each.difference.clean for each in found)
    assert verdict.proven
    path = tmp_path / "p1-t1-02.routes.json"
    path.write_text(path.read_text().replace('"dev": "p0"', '"dev": "p1"'))
    found, verdict = proven("two-tier", tmp_path)
    assert [each.difference.switch for each in found if not each.difference.clean] == ["p1-t1-02"]
    assert {step["switch"] for step in verdict.broken} == {"p1-t1-02"}


@pytest.mark.parametrize(
    ("target", "dump", "said"),
    [
        ("linux", "[not json", "dump:1: not JSON"),
        ("linux", "{}", "expected the list"),
        ("linux", '[{"dst": "nowhere"}]', "'nowhere' is not an IPv6 prefix"),
        ("sonic", "no", "dump: not JSON"),
        ("sonic", '"text"', "expected CONFIG_DB"),
        ("sonic", '{"SRV6_MY_SIDS": {"MRC": 1}}', "expected an object of fields"),
        ("sonic", '{"PORT": []}', "expected an object of rows"),
        ("junos", "", "sonic, frr, cumulus, linux, eos can"),
    ],
)
def test_a_dump_that_cannot_be_read_is_refused(target: str, dump: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        against(target, dump)


def test_a_folder_that_has_no_dumps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file of a switch of this fabric; expected such as p0-t0-00\.json"):
        list(compare_folder(MADE, tmp_path, ExportOptions()))
    with pytest.raises(ConfigError, match="not a folder"):
        list(compare_folder(MADE, tmp_path / "none", ExportOptions()))
