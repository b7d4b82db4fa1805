"""Ports of the processes that share a NIC: 4791 for the first, the next free one for each after it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from openmrc.errors import ConfigError
from openmrc.live.attributes import ContextAttr
from openmrc.live.host.addresses import SHARED_PORTS, host_of
from openmrc.live.host.sockets import Sockets

NIC = ("127.55.1.1", "127.55.2.1")
FEW = ContextAttr(evs_per_plane=2)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def process(opened: ExitStack, *planes: str) -> list[str]:
    """Open the sockets of a process; return its addresses as a peer learns them."""
    sockets = Sockets(planes or NIC, FEW)
    opened.callback(sockets.close)
    return [str(address) for address in sockets.addresses]


def test_processes_on_one_nic_get_ports_in_their_order(opened: ExitStack) -> None:
    assert process(opened) == ["127.55.1.1", "127.55.2.1"]
    assert process(opened) == ["127.55.1.1:4792", "127.55.2.1:4792"]
    assert process(opened) == ["127.55.1.1:4793", "127.55.2.1:4793"]


def test_the_port_of_a_process_that_ended_is_taken_again(opened: ExitStack) -> None:
    process(opened)
    second = Sockets(NIC, FEW)
    second.close()
    assert process(opened) == ["127.55.1.1:4792", "127.55.2.1:4792"]


def test_each_plane_has_its_own_port(opened: ExitStack) -> None:
    process(opened, NIC[1])
    assert process(opened) == ["127.55.1.1", "127.55.2.1:4792"]


def test_a_port_that_was_named_is_not_replaced(opened: ExitStack) -> None:
    process(opened, "127.55.1.1:4791")
    with pytest.raises(ConfigError, match=r"plane 0 cannot receive on 127.55.1.1: Address already in use"):
        process(opened, "127.55.1.1:4791")


def test_a_nic_whose_ports_are_all_taken_says_so(opened: ExitStack) -> None:
    for port in SHARED_PORTS:
        opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind((NIC[0], port))
    with pytest.raises(ConfigError, match=r"on 127.55.1.1, ports 4791 to 4854: Address already in use") as refused:
        process(opened)
    assert isinstance(refused.value.__cause__, OSError)
    assert refused.value.__cause__.errno == errno.EADDRINUSE


def test_an_address_that_is_not_ours_is_refused_at_once(opened: ExitStack) -> None:
    with pytest.raises(ConfigError, match=r"cannot receive on 192.0.2.1: Cannot assign requested address"):
        process(opened, "192.0.2.1")


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:4792", "192.0.2.1"),
        ("fd00::1", "fd00::1"),
        ("[fd00::1]:99", "fd00::1"),
    ],
)
def test_paths_to_a_peer_are_found_by_its_address_without_the_port(text: str, host: str) -> None:
    assert host_of(text) == host
