"""Two hosts and a tester between them, in network namespaces of their own: a veth pair a plane on each side.

The tester bridges the pairs itself, or the kernel does and the tester has one address a plane.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PLANES = 2
SIDES = ("a", "b")


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=30)


@contextmanager
def hosts() -> Iterator[str]:
    """Yield the prefix of the namespaces NAME-a, NAME-b and NAME-tester."""
    name = f"mrc-bridge-{os.getpid()}"
    namespaces = [f"{name}-{each}" for each in (*SIDES, "tester")]
    try:
        for each in namespaces:
            run("ip", "netns", "add", each)
            run("ip", "-n", each, "link", "set", "lo", "up")
        for side in SIDES:
            for plane in range(PLANES):
                _join(name, side, plane)
        yield name
    finally:
        for each in namespaces:
            subprocess.run(["ip", "netns", "del", each], check=False, capture_output=True, timeout=30)


def _join(name: str, side: str, plane: int) -> None:
    inside, far = f"{name}-{side}", f"{name}-tester"
    run(
        "ip",
        "link",
        "add",
        f"p{plane}",
        "netns",
        inside,
        "type",
        "veth",
        "peer",
        "name",
        f"{side}{plane}",
        "netns",
        far,
    )
    run("ip", "-n", inside, "link", "set", f"p{plane}", "up")
    run("ip", "-n", far, "link", "set", f"{side}{plane}", "up")
    address = f"fd25:0:0:{plane}::{SIDES.index(side) + 1}/64"
    run("ip", "-n", inside, "address", "add", address, "dev", f"p{plane}", "nodad")


def encapsulate(name: str) -> list[list[str]]:
    """Route between addresses of the hosts' own through SRv6 segments of the links; return them by side and plane."""
    for number, side in enumerate(SIDES):
        inside, other = f"{name}-{side}", 1 - number
        run("ip", "netns", "exec", inside, "sysctl", "-qw", "net.ipv6.conf.all.seg6_enabled=1")
        run("ip", "netns", "exec", inside, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
        for plane in range(PLANES):
            device, far = f"p{plane}", f"fd25:0:0:{plane}::{other + 1}"
            run("ip", "netns", "exec", inside, "sysctl", "-qw", f"net.ipv6.conf.{device}.seg6_enabled=1")
            run("ip", "-n", inside, "address", "add", _own(number, plane), "dev", "lo", "nodad")
            decapsulate = ["encap", "seg6local", "action", "End.DT6", "table", "255", "dev", device]
            run("ip", "-6", "-n", inside, "route", "add", f"fcbb:{plane}:{number}::/48", *decapsulate)
            segment = f"fcbb:{plane}:{other}::"
            run("ip", "-6", "-n", inside, "route", "add", f"{segment}/48", "via", far, "dev", device)
            path = ["encap", "seg6", "mode", "encap.red", "segs", segment, "dev", device]
            run("ip", "-6", "-n", inside, "route", "add", _own(other, plane), *path)
    return [[_own(number, plane) for plane in range(PLANES)] for number in range(2)]


def _own(number: int, plane: int) -> str:
    return f"fd26:{plane}::{number + 1}"


def adapter(name: str, side: str, addresses: list[str]) -> str:
    """Return the command of our endpoint in a host."""
    planes = " ".join(f"--plane {address}" for address in addresses)
    return f"ip netns exec {name}-{side} {sys.executable} -m openmrc.conform.adapters.endpoint {planes}"


def switch(name: str) -> None:
    """Have the kernel join the pairs of each plane; hosts and tester get addresses, IPv4 and IPv6, on it."""
    far = f"{name}-tester"
    give_addresses(name)
    for plane in range(PLANES):
        bridge = f"br{plane}"
        run("ip", "-n", far, "link", "add", bridge, "type", "bridge")
        for side in SIDES:
            run("ip", "-n", far, "link", "set", f"{side}{plane}", "master", bridge)
        run("ip", "-n", far, "link", "set", bridge, "up")
        run("ip", "-n", far, "address", "add", f"192.0.2.{128 * plane + 9}/25", "dev", bridge)
        run("ip", "-n", far, "address", "add", f"fd25:0:0:{plane}::9/64", "dev", bridge, "nodad")


def give_addresses(name: str) -> None:
    """Give the hosts IPv4 addresses; they have IPv6 ones already."""
    for number, side in enumerate(SIDES):
        for plane, address in enumerate(on_the_switch(number + 1, 4)):
            run("ip", "-n", f"{name}-{side}", "address", "add", f"{address}/25", "dev", f"p{plane}")


def on_the_switch(host: int, version: int) -> list[str]:
    """Return the addresses, one a plane, of host 1 or 2 or of the tester, 9."""
    if version == 4:
        return [f"192.0.2.{128 * plane + host}" for plane in range(PLANES)]
    return [f"fd25:0:0:{plane}::{host}" for plane in range(PLANES)]


def conform(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `mrc conform` in the tester's namespace."""
    words = ["ip", "netns", "exec", f"{name}-tester", sys.executable, "-m", "openmrc.programs.main", "conform"]
    return subprocess.run([*words, *options], capture_output=True, text=True, timeout=240, check=False)


def bridging(name: str, addresses: list[list[str]]) -> list[str]:
    """Return the options of a tester that bridges the hosts."""
    pairs = [f"--bridge=a{plane},b{plane}" for plane in range(PLANES)]
    return [*pairs, "--device", adapter(name, "a", addresses[0]), "--peer", adapter(name, "b", addresses[1])]
