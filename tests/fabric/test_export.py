"""Exports against golden files, and against software that others wrote.

Golden files are rewritten by `MRC_GOLDEN=write pytest tests/fabric/test_export.py`; read the difference.
"""

import ipaddress
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from openmrc.errors import ConfigError
from openmrc.fabric.build import build
from openmrc.fabric.diff import compare
from openmrc.fabric.export.targets import TARGETS, export
from openmrc.fabric.export.view import Options, link_local, view
from openmrc.fabric.fabric_file import load
from openmrc.fabric.tables import Action
from openmrc.fabric.usid import UsidPlan, prefix_text, usid_plan
from tests.fabric.small_fabrics import plan

FABRICS = Path(__file__).parents[2] / "scenarios" / "fabrics"
GOLDEN = Path(__file__).parent / "golden"
CASES = [("two-tier", "p1-t0-01"), ("two-tier", "p0-t1-02"), ("three-tier", "p0-t2-01"), ("two-sites", "p0-t1-01")]
EVERYWHERE = [(name, switch, target) for name, switch in CASES for target in TARGETS]
SHIFTING = [("shifting-downlinks", "p0-t0-01", target) for target in ("sonic", "frr", "linux", "eos")]


def files(name: str, switch: str, target: str, options: Options | None = None) -> dict[str, str]:
    made = plan(name)
    return dict(export(made, target, options or Options(), [made.topology.node_named(switch)]))


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
    found = dict(export(plan("one-switch-a-site"), "containerlab", Options()))
    for file, text in found.items():
        hold_against_golden(GOLDEN / "containerlab" / file, text)


def test_the_containerlab_topology_wires_every_cable_once() -> None:
    made = plan("two-tier")
    found = dict(export(made, "containerlab", Options()))
    topology = yaml.safe_load(found["two-tier.clab.yml"])["topology"]
    ends = [end for link in topology["links"] for end in link["endpoints"]]
    assert len(topology["links"]) == made.topology.links // 2
    assert len(set(ends)) == len(ends) == made.topology.links
    assert all(end.split(":")[0] in topology["nodes"] for end in ends)


@pytest.mark.parametrize("target", ["sonic", "frr"])
@pytest.mark.parametrize("name", ["two-tier", "three-tier", "two-sites", "bundles", "shifting-downlinks"])
def test_what_was_exported_reads_back_as_planned(name: str, target: str) -> None:
    made = plan(name)
    for switch in range(made.topology.nics, made.topology.nodes):
        (text,) = dict(export(made, target, Options(), [switch])).values()
        found = compare(made, switch, target, text, "dump", Options())
        assert found.clean
        assert found.same == found.planned == len(view(made, switch).entries)


def test_all_switches_export_as_each_alone() -> None:
    made = plan("three-tier")
    switches = range(made.topology.nics, made.topology.nodes)
    together = dict(export(made, "frr", Options()))
    assert together == {name: text for each in switches for name, text in export(made, "frr", Options(), [each])}


def test_sonic_has_what_its_daemon_insists_on() -> None:
    (text,) = files("two-tier", "p1-t0-01", "sonic").values()
    tables = json.loads(text)
    for key, sid in tables["SRV6_MY_SIDS"].items():
        locator, prefix = key.split("|")
        assert prefix.startswith(tables["SRV6_MY_LOCATORS"][locator]["prefix"].rstrip(":"))
        assert "decap_dscp_mode" in sid
    assert all("/" not in locator["prefix"] for locator in tables["SRV6_MY_LOCATORS"].values())


def test_an_old_sonic_is_not_given_what_it_does_not_know() -> None:
    with pytest.raises(ConfigError, match="an old SONiC image knows uN and uDT46, not uA"):
        files("shifting-downlinks", "p0-t0-00", "sonic", Options(image="old"))
    assert files("two-tier", "p0-t0-00", "sonic", Options(image="old"))


def test_cumulus_is_not_given_a_format_it_does_not_document() -> None:
    with pytest.raises(ConfigError, match="16-bit blocks only"):
        files("shifting-downlinks", "p0-t0-00", "cumulus")


def test_eos_says_that_it_is_experimental() -> None:
    (text,) = files("two-tier", "p0-t0-00", "eos").values()
    assert text.startswith("! EXPERIMENTAL")


def test_split_cages_name_their_parts() -> None:
    options = Options(breakout=8)
    names = {target: [TARGETS[target].port_name(port, options) for port in (0, 1, 8)] for target in TARGETS}
    assert names["sonic"] == ["Ethernet0", "Ethernet1", "Ethernet8"]
    assert names["cumulus"] == ["swp1s0", "swp1s1", "swp2s0"]
    assert names["eos"] == ["Ethernet1/1", "Ethernet1/2", "Ethernet2/1"]


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("junos", Options(), "sonic, frr, cumulus, linux, eos, containerlab are known"),
        ("sonic", Options(breakout=3), "8 lanes do not divide into 3 ports; 1, 2, 4, 8 would work"),
        ("sonic", Options(image="ancient"), "current or old"),
    ],
)
def test_a_wrong_export_is_refused(target: str, options: Options, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        list(export(plan("two-tier"), target, options))


def test_a_nic_has_no_switch_configuration() -> None:
    with pytest.raises(ConfigError, match="h3 is a NIC"):
        view(plan("two-tier"), 3)


def test_no_two_ports_share_a_mac_address() -> None:
    made = plan("three-tier")
    found: list[str] = []
    for switch in range(made.topology.nics, made.topology.nodes):
        for port in view(made, switch).ports:
            found += [port.mac] if port.peer else []
            found += [port.peer_mac] if port.peer_identity else []
    assert len(set(found)) == len(found) == made.topology.links


@pytest.mark.needs("vtysh")
@pytest.mark.parametrize(("name", "switch"), [*CASES, ("shifting-downlinks", "p0-t0-01")])
def test_frr_s_own_parser_takes_what_its_version_knows(name: str, switch: str, tmp_path: Path) -> None:
    (text,) = files(name, switch, "frr").values()
    path = tmp_path / "frr.conf"
    path.write_text(text)
    done = subprocess.run(["vtysh", "-C", "-f", str(path)], capture_output=True, text=True, timeout=60, check=False)
    unknown = re.findall(r"Unknown command\[\d+\]: +(.*)", done.stdout + done.stderr)
    # 8.4 has locators, but neither block lengths nor uSIDs nor static SIDs; 10.3 knows all
    newer = re.compile(r"prefix \S+ block-len|behavior usid|static-sids|sid \S+ locator|encapsulation|source-address")
    assert [line for line in unknown if not newer.match(line)] == []
    assert "ipv6 route" not in (done.stdout + done.stderr)


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


def installed(made: UsidPlan, switch: int, namespace: str) -> str:
    """Load the Linux export of a switch into a namespace with its ports, and return what iproute2 then shows."""
    ports = [port for port in view(made, switch).ports if port.peer]
    making = [f"link add p{port.number} type veth peer name q{port.number}" for port in ports]
    making += [f"link set q{port.number} up" for port in ports]
    as_root("ip", "-n", namespace, "-batch", "-", given="\n".join(making) + "\n")
    made_of = {file.split(".", 1)[1]: text for file, text in export(made, "linux", Options(), [switch])}
    as_root("ip", "netns", "exec", namespace, "sysctl", "-q", "-p", "-", given=made_of["sysctl"])
    as_root("ip", "-n", namespace, "-6", "-batch", "-", given=made_of["batch"])
    return as_root("ip", "-n", namespace, "-6", "-j", "route", "show")


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize(("name", "switch"), [*CASES, ("shifting-downlinks", "p0-t0-01"), ("bundles", "p0-t1-00")])
def test_iproute2_loads_the_linux_export_and_shows_it_back(name: str, switch: str, namespace: str) -> None:
    made = plan(name)
    node = made.topology.node_named(switch)
    dump = installed(made, node, namespace)
    found = compare(made, node, "linux", dump, namespace, Options())
    assert found.clean
    assert found.same == len(view(made, node).entries)


@pytest.mark.needs("root", "ip")
def test_what_is_changed_by_hand_in_the_kernel_is_told(namespace: str) -> None:
    made = plan("two-tier")
    node = made.topology.node_named("p1-t0-01")
    installed(made, node, namespace)
    for terms in (
        "route del fcbb:bb01:2001::/48",
        "route replace fcbb:bb01:2002::/48 via fe80::2:2 dev p5",
        "route add fcbb:bb01:2009::/48 via fe80::2:2 dev p5",
        "route add 2001:db8::/32 via fe80::2:2 dev p5",
    ):
        as_root("ip", "-n", namespace, "-6", *terms.split())
    dump = as_root("ip", "-n", namespace, "-6", "-j", "route", "show")
    found = compare(made, node, "linux", dump, namespace, Options())
    assert found.missing == ["fcbb:bb01:2001::/48 route p5"]
    assert found.extra == ["fcbb:bb01:2009::/48 route p5"]
    assert found.wrong == [{"planned": "fcbb:bb01:2002::/48 route p6", "installed": "fcbb:bb01:2002::/48 route p5"}]
    assert found.ignored > 0


def test_netlink_says_what_the_batch_says() -> None:
    for name, switch, _ in [*EVERYWHERE[::5], *SHIFTING[:1]]:
        made_of = {file.split(".", 1)[1]: text for file, text in files(name, switch, "linux").items()}
        entries = view(plan(name), plan(name).topology.node_named(switch)).entries
        messages = [json.loads(line) for line in made_of["netlink.json"].splitlines()]
        assert len(messages) == len(entries)
        for message, entry in zip(messages, entries, strict=True):
            assert f"route replace {message['RTA_DST']}/{message['dst_len']} " in made_of["batch"]
            assert ("RTA_GATEWAY" in message) == (entry.action == Action.ROUTE)
            assert message.get("RTA_ENCAP", {}).get("SEG6_LOCAL_ACTION") == {1: 1, 2: None, 3: 2}[entry.action]


def test_addresses_are_in_the_usual_form() -> None:
    """They are put together without the library that defines the form, for speed."""
    topology = build(load(FABRICS / "paper-131072.yaml"))
    made = usid_plan(topology)
    nodes = [0, 1, 65534, 65535, 65536, 131071, topology.nics, topology.nics + 1, topology.nodes - 1]
    for node in nodes:
        assert link_local(topology, node) == str(ipaddress.IPv6Address(link_local(topology, node)))
        for plane in (0, 1, 7):
            if node < topology.nics:
                value = (0xFD00 << 112) | (plane << 96) | (node + 1)
                assert made.identity(plane, node) == str(ipaddress.IPv6Address(value))
    for block, sid in ((0xFCBBBB00, 1), (0xFCBB0000, 0xE001), (0x20010DB8, 0x1000)):
        assert prefix_text(block, sid) == f"{ipaddress.IPv6Address(block << 96 | sid << 80)}/48"
