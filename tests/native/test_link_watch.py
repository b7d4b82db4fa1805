"""The carrier of a plane's interface, seen by programs through the native library, in a namespace of its own."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator

import pytest

from tests.live.host.in_namespace import SOFTWARE_LINKS, needs_namespaces, run
from tests.native.building import environment, library

pytestmark = pytest.mark.needs("root", "ip", "ibv_devinfo", "cc", "verbs.h", "jit")
_ADDRESS = "192.0.2.1"  # RFC 5737


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace with one pair of interfaces, v0 with an address and v1."""
    name = f"mrc-native-{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        ip("-n", name, "addr", "add", f"{_ADDRESS}/24", "dev", "v0")
        ip("-n", name, "link", "set", "v0", "up")
        ip("-n", name, "link", "set", "v1", "up")
        yield name
    finally:
        ip("netns", "del", name)


def start(namespace: str, program: str) -> subprocess.Popen[str]:
    words = ["ip", "netns", "exec", namespace, program]
    settings = environment(MRC_PLANES=_ADDRESS, MRC_LOG="off")
    return subprocess.Popen(words, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def next_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    assert select.select([program.stdout], [], [], 10)[0], "nothing was said in time"
    return program.stdout.readline()


def test_a_program_hears_of_a_carrier_and_of_an_address_that_go_and_come(namespace: str) -> None:
    library()
    watching = start(namespace, "ibv_asyncwatch")
    try:
        assert "mrc0" in next_line(watching)
        for change, event in (
            (("link", "set", "v1", "down"), "PORT_ERR"),
            (("link", "set", "v1", "up"), "PORT_ACTIVE"),
            (("addr", "del", f"{_ADDRESS}/24", "dev", "v0"), "PORT_ERR"),
            (("addr", "add", f"{_ADDRESS}/24", "dev", "v0"), "PORT_ACTIVE"),
        ):
            ip("-n", namespace, *change)
            assert event in next_line(watching)
    finally:
        watching.kill()
        watching.wait()


FOUND = """
from openmrc.live.host.interfaces import find_planes

def found():
    said = subprocess.run(['ibv_devinfo'], env=SETTINGS, capture_output=True, text=True, check=True).stderr
    return said.split(' found ')[1].split(',')[0].split()

def agree(*wanted):
    assert found() == [str(each.address) for each in find_planes(16)] == list(wanted), (found(), find_planes(16))

agree('127.0.0.1')
give_away('vz')
ip('link set docker7 up')
agree('10.1.3.1')
ip('link add tap5 link d0 type macvlan')
ip('link set tap5 up')
ip('address add fd00:1::5/64 dev tap5 nodad')
agree('fd00:1::5')
ip('address add 10.1.4.1/24 dev tap5')
agree('10.1.4.1')
ip('link set tap5 master podman0')
agree('10.1.1.1', '10.1.4.1')
"""


@needs_namespaces
def test_planes_that_nobody_names_are_those_that_the_python_endpoint_finds() -> None:
    settings = environment(MRC_PLANES="")
    run(f"SETTINGS = {settings!r}\n{FOUND}", *SOFTWARE_LINKS)
