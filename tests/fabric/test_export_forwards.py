"""The Linux export in the kernel: one namespace a node, one datagram along each path."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from openmrc.fabric.addressing.paths import choices, path
from openmrc.fabric.addressing.usid import UsidPlan, block_text
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.proof.diff import compare
from tests.fabric.export_lab import SEND, delivered, linux_containers, load, namespaces, nodes_of, run, tiny

pytestmark = pytest.mark.needs("root", "ip")


@pytest.fixture(params=["route", "ua"])
def fabric(request: pytest.FixtureRequest) -> Iterator[tuple[UsidPlan, str, dict[str, str]]]:
    """Lay the fabric out in namespaces, with a container's names of ports."""
    plan = tiny(f"usid: {{downlink: {request.param}}}")
    files = linux_containers(plan)
    with namespaces(plan) as mark:
        for node in nodes_of(files):
            load(node, files, mark)
        yield plan, mark, files


def test_the_kernel_delivers_a_datagram_on_every_path(fabric: tuple[UsidPlan, str, dict[str, str]]) -> None:
    plan, mark, _ = fabric
    assert delivered(plan, mark, 0, 1)
    assert delivered(plan, mark, 0, 3)


@pytest.mark.parametrize("hop", [0, 1], ids=["nic", "switch"])
def test_no_packet_takes_the_default_route_when_its_port_is_down(
    fabric: tuple[UsidPlan, str, dict[str, str]], hop: int
) -> None:
    plan, mark, _ = fabric
    way = path(plan, 0, 3, next(iter(choices(plan.planes[0].shape, 0, 3))))
    source, here = mark + plan.topology.name(0), mark + plan.topology.name(way.nodes[hop])
    with_management(here)
    assert delivered(plan, mark, 0, 3)  # so all ports are up, and neighbours known
    run("ip", "-n", here, "link", "set", f"eth{way.ports[hop] + 1}", "down")
    assert leaked(source, here, way.address) == 0
    run("ip", "-n", here, "-6", "route", "del", "blackhole", block_text(plan.planes[0].block), "metric", "4096")
    assert leaked(source, here, way.address) > 0  # so the blackhole is what keeps them


def with_management(space: str) -> None:
    """Give a node a management port with a default route."""
    run("ip", "-n", space, "link", "add", "mgmt", "type", "veth", "peer", "name", "mgmt-end")
    run("ip", "-n", space, "link", "set", "mgmt", "up")
    run("ip", "-n", space, "link", "set", "mgmt-end", "up")
    run("ip", "-n", space, "neighbor", "add", "fe80::bad", "lladdr", "02:00:00:00:00:bd", "dev", "mgmt")
    run("ip", "-n", space, "-6", "route", "add", "default", "via", "fe80::bad", "dev", "mgmt")


def leaked(source: str, space: str, address: str, count: int = 20) -> int:
    """Send datagrams to an address; return how many more packets than the kernel's own left by the management port."""
    before = sent_by(space)
    command = ["ip", "netns", "exec", source, sys.executable, "-c", SEND, *[address] * count]
    subprocess.run(command, check=False, capture_output=True, timeout=60)  # a NIC's own blackhole refuses
    return max(0, sent_by(space) - before - count // 2)


def sent_by(space: str) -> int:
    (shown,) = json.loads(run("ip", "-n", space, "-s", "-j", "link", "show", "mgmt"))
    return int(shown["stats64"]["tx"]["packets"])


def test_a_port_that_was_down_takes_no_usid_along_and_its_batch_brings_it_back(
    fabric: tuple[UsidPlan, str, dict[str, str]],
) -> None:
    plan, mark, files = fabric
    t0 = plan.topology.nics  # of the first two NICs; eth1 leads to the first
    name = plan.topology.name(t0)
    run("ip", "-n", mark + name, "link", "set", "eth1", "down")
    run("ip", "-n", mark + name, "link", "set", "eth1", "up")
    dump = run("ip", "-n", mark + name, "-6", "-j", "route", "show")
    found = compare(plan, t0, "linux", dump.replace("eth", "p"), name, ExportOptions())
    assert not any(" un" in line.split("action")[1] for line in found.missing)
    assert len(found.missing) == 1
    assert delivered(plan, mark, 1, 3)
    run("ip", "-n", mark + name, "-6", "-batch", "-", given=files[f"{name}.batch"])
    assert delivered(plan, mark, 2, 0)
