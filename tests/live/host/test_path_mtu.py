"""Where long packets end, in a chain of four network namespaces."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from openmrc.lab.namespaces import inside
from openmrc.live.ctl.report import narrow_hop

NAMES = [f"mrcm{os.getpid()}-{index}" for index in range(4)]
LONG = 4096 + 100


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture(params=["10.77.{0}.{1}", "fd77:1{0}::{1}"], ids=["IPv4", "IPv6"])
def chain(request: pytest.FixtureRequest) -> Iterator[str]:
    """Four hosts in a row, of 9000 bytes but for 1500 between the two in the middle; yield the form of addresses."""
    form, family = request.param, "-6" if ":" in request.param else "-4"
    bits = "64" if ":" in form else "24"
    try:
        for name in NAMES:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            for key in ("ipv4.ip_forward=1", "ipv6.conf.all.forwarding=1", "ipv6.conf.default.accept_dad=0"):
                subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", f"net.{key}"], check=True, timeout=20)
        for at in range(3):
            ip("link", "add", "right", "mtu", "9000", "netns", NAMES[at], "type", "veth",
               "peer", "name", "left", "mtu", "9000", "netns", NAMES[at + 1])  # fmt: skip
        for at in range(3):
            for name, device, end in ((NAMES[at], "right", 1), (NAMES[at + 1], "left", 2)):
                mtu = "1500" if at == 1 else "9000"
                ip("-n", name, "address", "add", f"{form.format(at, end)}/{bits}", "dev", device,
                   *(["nodad"] if ":" in form else []))  # fmt: skip
                ip("-n", name, "link", "set", device, "up", "mtu", mtu)
        for at, name in enumerate(NAMES):
            for net in range(3):
                via = form.format(at, 2) if net > at else form.format(at - 1, 1)
                if net not in (at, at - 1):
                    ip(family, "-n", name, "route", "add", f"{form.format(net, 0)}/{bits}", "via", via)
        await_answer(form.format(2, 2))
        yield form
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)


def await_answer(address: str) -> None:
    """Wait until the last host refuses a connection: neighbours are known, addresses are in use."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with inside(NAMES[0]):
            made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        with made:
            made.settimeout(0.5)
            if made.connect_ex((address, 9)) == errno.ECONNREFUSED:
                return
        time.sleep(0.05)
    raise AssertionError(f"{address} does not answer")


def asked(form: str, payload: int) -> str:
    with inside(NAMES[0]):
        return narrow_hop(form.format(0, 1), form.format(2, 2), payload)


@pytest.mark.needs("lab")
def test_a_router_that_says_its_mtu_is_named(chain: str) -> None:
    assert asked(chain, LONG) == f"{chain.format(0, 2)} forwards at most 1500 bytes"
    assert asked(chain, 1000) == "", "these arrive"
    assert asked(chain, 9000) == "this host forwards at most 9000 bytes"


@pytest.mark.needs("lab", "nft")
def test_a_router_that_drops_silently_is_named_by_what_short_packets_reach(chain: str) -> None:
    family, too_big = ("ip6", "icmpv6 type packet-too-big") if ":" in chain else ("ip", "icmp code frag-needed")
    table = f"table {family} x {{ chain c {{ type filter hook output priority 0\n {too_big} drop\n}}\n}}\n"
    subprocess.run(["ip", "netns", "exec", NAMES[1], "nft", table], check=True, timeout=20)
    hops = chain.format(0, 2), chain.format(1, 2)
    assert asked(chain, LONG) == f"they are lost between {hops[0]} and {hops[1]}, which short ones reach"
