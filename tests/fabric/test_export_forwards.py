"""The Linux and containerlab exports in the kernel: one namespace a node, one datagram along each path."""

from collections.abc import Iterator

import pytest

from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export.options import Options
from openmrc.fabric.proof.diff import compare
from tests.fabric.export_lab import containers, delivered, load, namespaces, nodes_of, run, tiny

pytestmark = pytest.mark.needs("root", "ip")


@pytest.fixture(params=["route", "ua"])
def fabric(request: pytest.FixtureRequest) -> Iterator[tuple[UsidPlan, str, dict[str, str]]]:
    """Lay the containerlab topology out in namespaces, as containerlab would in containers."""
    plan = tiny(f"usid: {{downlink: {request.param}}}")
    files = containers(plan)
    with namespaces(plan) as mark:
        for node in nodes_of(files):
            load(node, files, mark)
        yield plan, mark, files


def test_the_kernel_delivers_a_datagram_on_every_path(fabric: tuple[UsidPlan, str, dict[str, str]]) -> None:
    plan, mark, _ = fabric
    assert delivered(plan, mark, 0, 1)
    assert delivered(plan, mark, 0, 3)


def test_a_port_that_was_down_takes_no_usid_along_and_its_batch_brings_it_back(
    fabric: tuple[UsidPlan, str, dict[str, str]],
) -> None:
    plan, mark, files = fabric
    t0 = plan.topology.nics  # of the first two NICs; eth1 leads to the first
    name = plan.topology.name(t0)
    run("ip", "-n", mark + name, "link", "set", "eth1", "down")
    run("ip", "-n", mark + name, "link", "set", "eth1", "up")
    dump = run("ip", "-n", mark + name, "-6", "-j", "route", "show")
    found = compare(plan, t0, "linux", dump.replace("eth", "p"), name, Options())
    assert not any(" un" in line.split("action")[1] for line in found.missing)
    assert len(found.missing) == 1
    assert delivered(plan, mark, 1, 3)
    run("ip", "-n", mark + name, "-6", "-batch", "-", given=files[f"{name}.batch"])
    assert delivered(plan, mark, 2, 0)
