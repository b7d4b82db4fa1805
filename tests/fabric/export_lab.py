"""A tiny exported fabric in namespaces of the kernel, and datagrams that try its paths."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from openmrc.base.yaml_file import decode_text
from openmrc.fabric.addressing.paths import choices, path
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.export.linux import emit
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import export
from openmrc.fabric.export.view import containerlab_port, views
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric

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
s.bind(("::", 4791)); s.settimeout(float(sys.argv[2]))
print("ready", flush=True)
try:
    for _ in range(int(sys.argv[1])): print(s.recv(100).decode(), flush=True)
except TimeoutError: pass
"""
SEND = """
import contextlib, socket, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_UDP, 101, 1)
for address in sys.argv[1:]:
    with contextlib.suppress(OSError):  # lost: a port that is not up yet has no route, and the one behind drops
        s.sendto(address.encode(), (address, 4791))
"""


def run(*command: str, given: str | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=given)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def tiny(extra: str = "") -> UsidPlan:
    return usid_plan(build(decode_text(TINY + extra, Fabric, "tiny")))


@contextmanager
def namespaces(plan: UsidPlan, port: str = "eth", first: int = 1) -> Iterator[str]:
    """Lay a namespace a node and a veth pair a cable; yield what the namespaces' names begin with."""
    topology, mark = plan.topology, f"mrcf{os.getpid()}-"
    names = [topology.name(node) for node in range(topology.nodes)]

    def end(link: int) -> tuple[str, str]:
        source, number = int(topology.link_source[link]), int(topology.link_port[link])
        is_nic = source < topology.nics
        return mark + names[source], f"eth{number + 1}" if is_nic else f"{port}{number + first}"

    try:
        for name in names:
            run("ip", "netns", "add", mark + name)
            run("ip", "-n", mark + name, "link", "set", "lo", "up")
        for link in range(topology.links):
            back = int(topology.link_reverse[link])
            if link < back:
                (a, a_port), (b, b_port) = end(link), end(back)
                run("ip", "link", "add", a_port, "netns", a, "type", "veth", "peer", "name", b_port, "netns", b)
        yield mark
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", mark + name], check=False, capture_output=True, timeout=60)


def load(name: str, files: dict[str, str], mark: str) -> None:
    """Read a node's files as their heads say."""
    inside = ("ip", "netns", "exec", mark + name)
    run("ip", "-n", mark + name, "-batch", "-", given=files[f"{name}.links"])
    run(*inside, "sysctl", "-q", "-p", "-", given=files[f"{name}.sysctl"])
    if f"{name}.batch" in files:
        run("ip", "-n", mark + name, "-6", "-batch", "-", given=files[f"{name}.batch"])
    if f"{name}.tc" in files:
        assert all(" red " in line for line in load_queues(mark + name, files[f"{name}.tc"]))


def load_queues(namespace: str, text: str) -> list[str]:
    """Load a .tc file whole; return the lines whose queue this kernel does not have. iproute2 must take every line."""
    command = ["ip", "netns", "exec", namespace, "tc", "-force", "-batch", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=text)
    said = done.stderr.splitlines()
    failed = [int(line.rpartition(":")[2]) for line in said if line.startswith("Command failed")]
    unknown = [line for line in said if line == "Error: Specified qdisc kind is unknown."]
    assert len(said) == len(failed) + len(unknown), done.stderr
    assert len(failed) == len(unknown)
    return [text.splitlines()[number - 1] for number in failed]


def containers(plan: UsidPlan, options: ExportOptions | None = None) -> dict[str, str]:
    """Return the containerlab export, whose topology file names every node."""
    return dict(export(plan, "containerlab", options or ExportOptions()))


def linux_containers(plan: UsidPlan) -> dict[str, str]:
    """Return the same with the Linux export's files for the switches."""
    made = [(switch, emit(switch, containerlab_port)) for switch in views(plan, ExportOptions())]
    return containers(plan) | {f"{switch.name}.{key}": text for switch, own in made for key, text in own.items()}


def nodes_of(files: dict[str, str]) -> list[str]:
    return list(yaml.safe_load(files["tiny.clab.yml"])["topology"]["nodes"])


def delivered(plan: UsidPlan, mark: str, source: int, destination: int, seconds: float = 20) -> bool:
    """Send a datagram on every path; tell whether all arrive."""
    shape = plan.planes[0].shape
    addresses = [path(plan, source, destination, way).address for way in choices(shape, source, destination)]
    name = plan.topology.name
    receiver = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            mark + name(destination),
            sys.executable,
            "-c",
            RECEIVE,
            str(len(addresses)),
            str(seconds),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "ready\n"
    run("ip", "netns", "exec", mark + name(source), sys.executable, "-c", SEND, *addresses)
    said, _ = receiver.communicate(timeout=seconds + 30)
    return sorted(said.split()) == sorted(addresses)
