"""What keeps packets from the routes of a real switch, read back from its namespace: filters, rules, masters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from openmrc.fabric.addressing.paths import path
from openmrc.fabric.export.view import view
from openmrc.fabric.proof.diff import compare_running, read_running, tables_of
from openmrc.fabric.proof.verify import verify
from openmrc.fabric.readback import kernel_state
from openmrc.lab import commands, switch_state
from openmrc.lab.layout import EXPORT, Lab
from openmrc.lab.namespaces import inside, namespace
from tests.lab.sockets import drain, mark, udp
from tests.needs import require

NAME = "p0-t0-00"
PORT = 4791
DROP = """
table ip6 acl {
  chain forward {
    type filter hook forward priority 0; policy accept;
    iifname "p0" ip6 daddr fcbb:bb00::/32 counter drop
  }
}
"""


def run(lab: Lab, *command: str, given: str = "") -> str:
    with inside(namespace(lab.name, NAME)):
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def arrived(lab: Lab) -> int:
    """Send a datagram on every path of plane 0 from h0 to h3; return how many arrive."""
    sender = udp(namespace(lab.name, "h0"), lab.plan.nic_address(0, 0), 5050)
    receiver = udp(namespace(lab.name, "h3"), lab.plan.nic_address(0, 3), PORT)
    with sender, receiver:
        mark(sender, 4)
        for way in lab.ways(0, 0, 3):
            sender.sendto(b"through", (path(lab.plan, 0, 3, way).address, PORT))
        return len(drain(receiver))


def read_back(lab: Lab) -> tuple[bool, bool, set[str]]:
    """Return whether the switch is clean, whether the fabric is proven, and why entries do not work."""
    found = list(
        read_running(
            lab.plan, "linux", lambda each: switch_state.read_state(each, namespace(lab.name, each.name)), EXPORT
        )
    )
    clean = all(each.difference.clean for each in found)
    whys = {line.partition(": ")[2] for each in found for line in each.dead}
    return clean, verify(lab.plan, tables_of(lab.topology, found)).proven, whys


@pytest.fixture
def healthy(lab: Lab) -> Iterator[Lab]:
    """The lab, found clean before and after."""
    assert read_back(lab) == (True, True, set())
    yield lab
    assert read_back(lab) == (True, True, set())


@pytest.mark.needs("nft")
def test_a_filter_that_drops_the_block_at_a_port_is_named_and_the_fabric_is_not_proven(healthy: Lab) -> None:
    assert arrived(healthy) == len(healthy.ways(0, 0, 3))
    run(healthy, "nft", "-f", "-", given=DROP)
    try:
        assert arrived(healthy) == 0  # so it does drop them
        clean, proven, whys = read_back(healthy)
    finally:
        run(healthy, "nft", "flush", "ruleset")
    assert (clean, proven) == (False, False)
    assert whys == {
        "nftables may stop its packets: ip6 acl forward: iifname p0 ip6 daddr fcbb:bb00::/32 drop",
    }


def test_a_rule_before_the_routes_is_named_and_the_fabric_is_not_proven(healthy: Lab) -> None:
    rule = ("to", "fcbb:bb00::/32", "blackhole")
    run(healthy, "ip", "-6", "rule", "add", *rule)
    try:
        assert arrived(healthy) == 0
        clean, proven, whys = read_back(healthy)
    finally:
        run(healthy, "ip", "-6", "rule", "del", *rule)
    assert (clean, proven) == (False, False)
    assert whys == {"an ip rule comes before the routes: 32765: from all to fcbb:bb00::/32 blackhole"}


@pytest.mark.parametrize("kind", ["bridge", "vrf", "bond"])
def test_a_port_under_a_master_is_named_and_the_fabric_is_not_proven(lab: Lab, kind: str) -> None:
    more = ("table", "77") if kind == "vrf" else ()
    with inside(namespace(lab.name, NAME)):
        made = subprocess.run(["ip", "link", "add", "other", "type", kind, *more], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"this kernel has no {kind}: {made.stderr.decode().strip()}")
    try:
        if kind == "bond":
            run(lab, "ip", "link", "set", "p2", "down")
        run(lab, "ip", "link", "set", "p2", "master", "other")
        clean, proven, whys = read_back(lab)
    finally:
        run(lab, "ip", "link", "set", "p2", "nomaster")
        run(lab, "ip", "link", "del", "other")
        restore(lab)
    assert (clean, proven) == (False, False)
    assert f"port p2 is a member of other ({kind})" in whys
    assert read_back(lab) == (True, True, set())


def restore(lab: Lab) -> None:
    """Bring p2 back, which a VRF or bond has set down."""
    lines = commands.port_back(view(lab.plan, lab.topology.node_named(NAME), EXPORT), "p2")
    run(lab, "ip", "-batch", "-", given="\n".join(lines) + "\n")


def test_what_is_not_read_back_is_listed(lab: Lab) -> None:
    seen = view(lab.plan, lab.topology.node_named(NAME), EXPORT)
    found = compare_running(seen, "linux", switch_state.read_state(seen, namespace(lab.name, NAME)))
    assert found.unchecked == ["running kernel: BPF of tcx and netfilter, programs of the lab's ports"]


def test_dumps_that_an_operator_hands_over_say_the_same(lab: Lab) -> None:
    """The commands of docs/exports.md, each into a file of its own."""
    require("nft")
    seen = view(lab.plan, lab.topology.node_named(NAME), EXPORT)
    live = switch_state.read_state(seen, namespace(lab.name, NAME))
    for section, command in switch_state.COMMANDS:
        dump = json.loads(run(lab, *command))
        assert live[section] == (kernel_state.read(dump, "p0-t0-00.neigh.json") or {})[section]
