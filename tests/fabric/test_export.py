"""Exports against golden files, and against software that others wrote.

Golden files are rewritten by `MRC_GOLDEN=write pytest tests/fabric/test_export.py`; read the difference.
"""

import ipaddress
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from openmrc.base.yaml_file import decode_text
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan, identity, prefix_text, usid_plan
from openmrc.fabric.export.addresses import link_local, mac
from openmrc.fabric.export.cages import Cages
from openmrc.fabric.export.options import ExportOptions, FrrVersion
from openmrc.fabric.export.targets import TARGETS, every_node, export, warnings, write_all
from openmrc.fabric.export.view import view
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.proof.diff import compare
from openmrc.programs.fabrics.files import fork_each
from tests.fabric.export_lab import load_queues
from tests.fabric.small_fabrics import plan
from tests.needs import REASON

FABRICS = Path(__file__).parents[2] / "scenarios" / "fabrics"
GOLDEN = Path(__file__).parent / "golden"
CASES = [("two-tier", "p1-t0-01"), ("two-tier", "p0-t1-02"), ("three-tier", "p0-t2-01"), ("two-sites", "p0-t1-01")]
EVERYWHERE = [(name, switch, target) for name, switch in CASES for target in TARGETS]
SHIFTING = [("shifting-downlinks", "p0-t0-01", target) for target in ("sonic", "frr", "linux")]


def files(name: str, switch: str, target: str, options: ExportOptions | None = None) -> dict[str, str]:
    made = plan(name)
    return dict(export(made, target, options or ExportOptions(), [made.topology.node_named(switch)]))


def hold_against_golden(path: Path, text: str) -> None:
    if os.environ.get("MRC_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize(("name", "switch", "target"), EVERYWHERE + SHIFTING)
def test_exports_are_as_they_were(name: str, switch: str, target: str) -> None:
    for file, text in files(name, switch, target).items():
        hold_against_golden(GOLDEN / target / f"{name}.{file}", text)


def test_the_containerlab_topology_is_as_it_was() -> None:
    found = dict(export(plan("one-switch-a-site"), "containerlab", ExportOptions()))
    for file, text in found.items():
        hold_against_golden(GOLDEN / "containerlab" / file, text)


def test_the_containerlab_topology_wires_every_cable_once() -> None:
    made = plan("two-tier")
    found = dict(export(made, "containerlab", ExportOptions()))
    topology = yaml.safe_load(found["two-tier.clab.yml"])["topology"]
    ends = [end for link in topology["links"] for end in link["endpoints"]]
    assert len(topology["links"]) == made.topology.links // 2
    assert len(set(ends)) == len(ends) == made.topology.links
    assert all(end.split(":")[0] in topology["nodes"] for end in ends)


def test_the_containerlab_topology_has_what_the_schema_knows() -> None:
    """Fields and kinds of containerlab's `schemas/clab.schema.json`, the part that is used here."""
    found = dict(export(plan("two-tier"), "containerlab", ExportOptions()))
    described = yaml.safe_load(found["two-tier.clab.yml"])
    assert set(described) == {"name", "topology"}
    assert set(described["topology"]) == {"defaults", "nodes", "links"}
    assert described["topology"]["defaults"].keys() == {"image", "kind"}
    assert described["topology"]["defaults"]["kind"] == "linux"
    for node in described["topology"]["nodes"].values():
        has_frr = "image" in node
        assert node.keys() == {"binds", "exec"} | ({"image"} if has_frr else set())
        assert len(set(node["binds"])) == len(node["binds"]) == len(node["exec"]) + has_frr > 0
        assert all(bind.split(":")[0] in found for bind in node["binds"])
        assert all(shlex.split(command) for command in node["exec"])  # as containerlab reads them
    for link in described["topology"]["links"]:
        assert link.keys() == {"endpoints"}
        assert all(re.fullmatch(r"\S+:\S+", end) for end in link["endpoints"])
        assert len(link["endpoints"]) == 2


def test_all_switches_export_as_each_alone() -> None:
    made = plan("three-tier")
    switches = range(made.topology.nics, made.topology.nodes)
    together = dict(export(made, "frr", ExportOptions()))
    assert together == {name: text for each in switches for name, text in export(made, "frr", ExportOptions(), [each])}


def test_cumulus_is_not_given_a_format_it_does_not_document() -> None:
    with pytest.raises(ConfigError, match="16-bit blocks only"):
        files("shifting-downlinks", "p0-t0-00", "cumulus")


def test_eos_takes_its_prefixes_from_a_domain_and_a_usid() -> None:
    (text,) = files("bundles", "p0-t0-01", "eos").values()
    assert "router srv6\n   vrf default\n      micro-segment domain MRC\n         block fcbb:bb00::/32\n" in text
    assert "      locator MRC1\n         prefix micro-segment domain MRC end usid 0x1003\n" in text
    with pytest.raises(ConfigError, match="EOS's uA is not documented in public"):
        files("shifting-downlinks", "p0-t0-00", "eos")


@pytest.mark.parametrize(
    ("version", "sids", "left"),
    [("8.4", 0, 3), ("10.3", 1, 2), ("10.7", 3, 0)],
)
def test_frr_is_given_what_its_version_installs_and_the_kernel_the_rest(
    version: FrrVersion, sids: int, left: int
) -> None:
    found = {
        name.split(".", 1)[1]: text
        for name, text in files("bundled-twice", "p0-t0-01", "frr", ExportOptions(frr=version)).items()
    }
    assert found["conf"].count("behavior uN") == sids
    assert found.get("batch", "").count("action End flavors next-csid") == left
    assert "link add sr0 type veth" in found["links"]


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("junos", ExportOptions(), "sonic, frr, cumulus, linux, eos, containerlab, hosts are known"),
        ("sonic", ExportOptions(cages=Cages(breakout=3)), "8 lanes do not divide into 3 ports; 1, 2, 4, 8 would work"),
        ("sonic", ExportOptions(mtu=1500), "MRC needs 4242 at 4 KiB"),
        ("sonic", ExportOptions(ntp=("time",)), "expected an IP address"),
        ("eos", ExportOptions(management="10.0.0.0/30"), "too few for 2 machines"),
        ("sonic", ExportOptions(cages=Cages(count=0)), "both above 0"),
        ("linux", ExportOptions(interface="eth"), "write {nic} and {plane}"),
    ],
)
def test_a_wrong_export_is_refused(target: str, options: ExportOptions, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        list(export(plan("two-tier"), target, options))


def test_a_nic_has_no_switch_configuration() -> None:
    with pytest.raises(ConfigError, match="h3 is a NIC"):
        view(plan("two-tier"), 3)


def test_no_two_nodes_of_a_plane_share_an_address() -> None:
    for name in ("three-tier", "unlike-planes"):
        topology = plan(name).topology
        for plane in range(len(topology.planes)):
            nodes = [node for node in range(topology.nodes) if topology.node_plane[node] in (-1, plane)]
            assert len({mac(topology, plane, node, plane) for node in nodes}) == len(nodes)
            assert len({link_local(topology, plane, node) for node in nodes}) == len(nodes)


def test_many_processes_write_what_one_does(tmp_path: Path) -> None:
    made = usid_plan(build(load(FABRICS / "gpus-1024.yaml")))
    sizes = [size for some in write_all(made, "linux", ExportOptions(), tmp_path, None, fork_each) for size in some]
    one_by_one = dict(export(made, "linux", ExportOptions()))
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == one_by_one
    assert sizes == [len(text) for text in one_by_one.values()]


@pytest.mark.parametrize(("target", "nodes", "files"), [("hosts", 8, 7), ("eos", 12, 1)])
def test_progress_is_told_for_every_host_or_switch(target: str, nodes: int, files: int, tmp_path: Path) -> None:
    made = plan("unlike-planes")
    written = list(write_all(made, target, ExportOptions(), tmp_path))
    assert len(written) == len(every_node(made, target)) == nodes
    assert {len(sizes) for sizes in written} == {files}


@pytest.mark.parametrize("target", [*TARGETS, "hosts", "containerlab"])
def test_every_target_says_what_it_needs(target: str) -> None:
    assert warnings(plan("two-tier"), target, ExportOptions())
    trimming = any("trim" in line for line in warnings(plan("two-tier"), target, ExportOptions()))
    assert trimming == (target in TARGETS)


def test_addresses_of_management_are_numbered() -> None:
    options = ExportOptions(management="10.91.0.0/24", ntp=("10.91.0.1",))
    for target, line in (
        ("sonic", '"eth0|10.91.0.4/24": {"gwaddr": "10.91.0.1"}'),
        ("cumulus", "nv set interface eth0 ip address 10.91.0.4/24"),
        ("eos", "   ip address 10.91.0.4/24"),
    ):
        (text,) = files("two-tier", "p0-t0-02", target, options).values()
        assert line in text


@pytest.mark.needs("vtysh")
@pytest.mark.parametrize(("name", "switch"), [*CASES, ("shifting-downlinks", "p0-t0-01")])
def test_the_parser_of_this_debian_s_frr_takes_the_file_for_its_version(name: str, switch: str, tmp_path: Path) -> None:
    found = {file.split(".", 1)[1]: text for file, text in files(name, switch, "frr", ExportOptions(frr="8.4")).items()}
    path = tmp_path / "frr.conf"
    path.write_text(found["conf"])
    done = subprocess.run(["vtysh", "-C", "-f", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert "Unknown command" not in done.stdout + done.stderr
    assert done.returncode == 0


def as_root(*command: str, given: str | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=given)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"mrcexp{os.getpid()}"
    as_root("ip", "netns", "add", name)
    try:
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, timeout=60)


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("buffer_kb", [16, 256, 65_536])
@pytest.mark.parametrize("gbps", [1, 100, 200, 400, 800])
def test_the_queues_load_whole_at_every_rate(gbps: int, buffer_kb: int, namespace: str) -> None:
    tier = f"buffer_kb: {buffer_kb}"
    text = f"""
name: fast
hosts: {{count: 4}}
planes: [{{host_gbps: {gbps}, t0: {{down: 2, up: 2, {tier}}}, t1: {{{tier}}}}}]
"""
    made = usid_plan(build(decode_text(text, Fabric, "fast")))
    switch = made.topology.node_named("p0-t0-00")
    queues = dict(export(made, "linux", ExportOptions(), [switch]))["p0-t0-00.tc"]
    ports = [f"p{port.number}" for port in view(made, switch).layout.ports]
    for port in ports:
        as_root("ip", "-n", namespace, "link", "add", port, "type", "veth", "peer", "name", f"q{port}")
    refused = load_queues(namespace, queues)
    shown = json.loads(as_root("tc", "-n", namespace, "-j", "qdisc", "show"))
    for port in ports:
        lacking = sum(f"dev {port} " in line for line in refused)
        assert sum(each["dev"] == port and each["kind"] != "noqueue" for each in shown) == 4 - lacking
    if refused:
        pytest.skip(REASON + "RED in the kernel (tc took every line)")


def installed(made: UsidPlan, switch: int, namespace: str) -> str:
    """Load the Linux export of a switch into a namespace with its ports, and return what iproute2 then shows."""
    numbers = [port.number for port in view(made, switch).layout.ports]
    making = [f"link add p{number} type veth peer name q{number}" for number in numbers]
    making += [f"link set q{number} up" for number in numbers]
    as_root("ip", "-n", namespace, "-batch", "-", given="\n".join(making) + "\n")
    made_of = {file.split(".", 1)[1]: text for file, text in export(made, "linux", ExportOptions(), [switch])}
    as_root("ip", "-n", namespace, "-batch", "-", given=made_of["links"])
    as_root("ip", "netns", "exec", namespace, "sysctl", "-q", "-p", "-", given=made_of["sysctl"])
    for _ in range(2):  # it may be read again
        as_root("ip", "-n", namespace, "-6", "-batch", "-", given=made_of["batch"])
    refused = load_queues(namespace, made_of["tc"])
    assert all(" red " in line for line in refused)  # not every kernel has RED; all have the rest
    return as_root("ip", "-n", namespace, "-6", "-j", "route", "show")


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize(("name", "switch"), [*CASES, ("shifting-downlinks", "p0-t0-01"), ("bundles", "p0-t1-00")])
def test_iproute2_loads_the_linux_export_and_shows_it_back(name: str, switch: str, namespace: str) -> None:
    made = plan(name)
    node = made.topology.node_named(switch)
    dump = installed(made, node, namespace)
    found = compare(made, node, "linux", dump, namespace, ExportOptions())
    assert found.clean
    assert found.same == len(view(made, node).entries) + 1  # and the blackhole


@pytest.mark.needs("root", "ip")
def test_what_is_changed_by_hand_in_the_kernel_is_told(namespace: str) -> None:
    made = plan("two-tier")
    node = made.topology.node_named("p1-t0-01")
    installed(made, node, namespace)
    for words in (
        "route del fcbb:bb01:2001::/48",
        "route replace fcbb:bb01:2002::/48 via fe80::1:20ff:fe00:2 dev p5",
        "route replace fcbb:bb01:2003::/48 via fe80::bad dev p7",
        "route add fcbb:bb01:2009::/48 via fe80::2:2 dev p5",
        "route add 2001:db8::/32 via fe80::2:2 dev p5",
        "route add blackhole fcbb:bb01:e000:1::/64",
    ):
        as_root("ip", "-n", namespace, "-6", *words.split())
    dump = as_root("ip", "-n", namespace, "-6", "-j", "route", "show")
    found = compare(made, node, "linux", dump, namespace, ExportOptions())
    assert found.missing == ["route fcbb:bb01:2001::/48: action route, interface p5, via fe80::1:20ff:fe00:1"]
    assert found.extra == [
        "route fcbb:bb01:2009::/48: action route, interface p5, via fe80::2:2",
        "route fcbb:bb01:e000:1::/64: action blackhole",
    ]
    assert found.wrong == [
        {"planned": f"route fcbb:bb01:{usid}::/48: {before}", "installed": f"route fcbb:bb01:{usid}::/48: {after}"}
        for usid, before, after in (
            ("2002", "interface p6", "interface p5"),
            ("2003", "via fe80::1:20ff:fe00:3", "via fe80::bad"),
        )
    ]
    assert found.ignored > 0


def test_addresses_are_in_the_usual_form() -> None:
    """They are put together without the library that defines the form, for speed."""
    topology = build(load(FABRICS / "paper-131072.yaml"))
    nodes = [0, 1, 65534, 65535, 65536, 131071, topology.nics, topology.nics + 1, topology.nodes - 1]
    for node in nodes:
        for plane in (0, 1, 7):
            assert link_local(topology, plane, node) == str(ipaddress.IPv6Address(link_local(topology, plane, node)))
            if node < topology.nics:
                value = (0xFD00 << 112) | (plane << 96) | (node + 1)
                assert identity(plane, node) == str(ipaddress.IPv6Address(value))
    for block, sid in ((0xFCBBBB00, 1), (0xFCBB0000, 0xE001), (0x20010DB8, 0x1000)):
        assert prefix_text(block, sid) == f"{ipaddress.IPv6Address(block << 96 | sid << 80)}/48"
