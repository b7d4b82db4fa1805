"""The Linux and containerlab exports in the kernel: one namespace a node, one datagram along each path."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from openmrc.fabric.build import build
from openmrc.fabric.description import Fabric
from openmrc.fabric.export.targets import export
from openmrc.fabric.export.view import Options
from openmrc.fabric.paths import choices, path
from openmrc.fabric.usid import UsidPlan, usid_plan
from openmrc.fabric.yaml_file import decode_text

TINY = """
name: tiny
hosts: {count: 4}
planes:
  - {host_gbps: 1, t0: {down: 2, up: 2}, t1: {}}
"""
# The destination changes on the way, so the sender leaves the UDP checksum zero (RFC 6935) and the receiver takes it.
RECEIVE = """
import socket, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_UDP, 102, 1)
s.bind(("::", 4791)); s.settimeout(20)
print("ready", flush=True)
for _ in range(int(sys.argv[1])): print(s.recv(100).decode(), flush=True)
"""
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_UDP, 101, 1)
for address in sys.argv[1:]: s.sendto(address.encode(), (address, 4791))
"""


def run(*command: str, given: str | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=given)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@pytest.fixture(params=["route", "ua"])
def fabric(request: pytest.FixtureRequest) -> Iterator[tuple[UsidPlan, str]]:
    """Lay the containerlab topology out in namespaces, as containerlab would in containers."""
    made = usid_plan(build(decode_text(TINY + f"usid: {{downlink: {request.param}}}", Fabric, "tiny")))
    files = dict(export(made, "containerlab", Options()))
    topology = yaml.safe_load(files["tiny.clab.yml"])["topology"]
    mark = f"mrcf{os.getpid()}"
    try:
        for node in topology["nodes"]:
            run("ip", "netns", "add", f"{mark}-{node}")
            run("ip", "-n", f"{mark}-{node}", "link", "set", "lo", "up")
        for link in topology["links"]:
            (a, a_port), (b, b_port) = (end.split(":") for end in link["endpoints"])
            ends = ["netns", f"{mark}-{a}", "type", "veth", "peer", "name", b_port, "netns", f"{mark}-{b}"]
            run("ip", "link", "add", a_port, *ends)
        for node in topology["nodes"]:
            inside = ("ip", "netns", "exec", f"{mark}-{node}")
            run(*inside, "sysctl", "-q", "-p", "-", given=files[f"{node}.sysctl"])
            run("ip", "-n", f"{mark}-{node}", "-6", "-batch", "-", given=files[f"{node}.batch"])
        yield made, mark
    finally:
        for node in topology["nodes"]:
            subprocess.run(["ip", "netns", "del", f"{mark}-{node}"], check=False, capture_output=True, timeout=60)


@pytest.mark.needs("root", "ip")
def test_the_kernel_delivers_a_datagram_on_every_path(fabric: tuple[UsidPlan, str]) -> None:
    made, mark = fabric
    shape = made.planes[0].shape
    for destination in (1, 3):
        addresses = [path(made, 0, destination, way).address for way in choices(shape, 0, destination)]
        receiver = subprocess.Popen(
            ["ip", "netns", "exec", f"{mark}-h{destination}", sys.executable, "-c", RECEIVE, str(len(addresses))],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        run("ip", "netns", "exec", f"{mark}-h0", sys.executable, "-c", SEND, *addresses)
        said, _ = receiver.communicate(timeout=30)
        assert sorted(said.split()) == sorted(addresses)
