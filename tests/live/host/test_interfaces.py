"""What the kernel reports of interfaces, addresses and routes, and the path MTU made of it."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from openmrc.live.host import netlink
from openmrc.live.host.interfaces import all_interfaces, interface_of
from openmrc.live.host.sockets import payload_that_fits
from tests.live.host.in_namespace import SOFTWARE_LINKS, needs_namespaces, run

VETH = ("link add va type veth peer name vx", "link set va up", "link set vx up", "address add 10.0.0.1/24 dev va")


def test_links_are_those_that_the_c_library_names() -> None:
    assert {link.index: link.name for link in netlink.links().values()} == dict(socket.if_nameindex())


def test_every_loopback_address_belongs_to_the_loopback() -> None:
    for address in ("127.0.0.1", "127.66.1.2", "::1"):
        interface = interface_of(ip_address(address))
        assert interface is not None
        assert interface.is_loopback
    assert any(each.is_loopback for each in all_interfaces(netlink.links()))


def test_an_address_is_looked_for_among_the_given_interfaces_alone() -> None:
    every = all_interfaces(netlink.links())
    assert interface_of(ip_address("127.0.0.1"), among=every) == interface_of(ip_address("127.0.0.1"))
    assert interface_of(ip_address("127.0.0.1"), among=[]) is None


def test_route_to_the_loopback_leaves_by_the_loopback() -> None:
    found = netlink.route(ip_address("127.0.0.9"), ip_address("127.0.0.1"))
    assert found is not None
    assert netlink.links()[found].is_loopback


@pytest.mark.parametrize(("mtu", "payload"), [(65536, 4096), (4191, 4096), (4190, 2048), (1500, 1024), (300, 0)])
def test_path_mtu_leaves_room_for_every_header(mtu: int, payload: int) -> None:
    assert payload_that_fits(mtu) == payload


@needs_namespaces
def test_path_mtu_is_that_of_the_interface_with_the_address_whatever_its_carrier() -> None:
    run(
        "from openmrc.live.host.sockets import Sockets\n"
        "from openmrc.live.attributes import ContextAttr\n"
        "for expected, planes in ((4096, ['10.0.0.1']), (4096, ['10.0.1.1']), (1024, ['10.0.0.1', '10.0.2.1'])):\n"
        "    sockets = Sockets(planes, ContextAttr(evs_per_plane=1))\n"
        "    assert sockets.mtu == expected, (planes, sockets.describe())\n"
        "    sockets.close()\n"
        "assert 'plane 0: 4096, plane 1: 1024' in sockets.describe(), sockets.describe()\n",
        *VETH,
        "link set va mtu 9000",
        "address add 10.0.1.1/32 dev va",
        "link set vx down",
        "link add vb type veth peer name vy",
        "link set vb up",
        "address add 10.0.2.1/24 dev vb",
    )


@needs_namespaces
def test_planes_are_interfaces_on_hardware_or_the_ends_of_a_container_whatever_their_names() -> None:
    """Names are those of container tools, kinds what `ip` makes of them; hardware is stood for by a macvlan."""
    run(
        "from openmrc.live.host.interfaces import find_planes\n"
        "def names():\n"
        "    return [each.name for each in find_planes(16)]\n"
        "assert names() == ['lo'], names()\n"
        "give_away('vz')\n"
        "ip('link set docker7 up')\n"
        "assert names() == ['docker7'], names()\n"
        "ip('link add tap5 link d0 type macvlan')\n"
        "ip('address add 10.1.4.1/24 dev tap5')\n"
        "ip('link set tap5 up')\n"
        "assert names() == ['tap5'], names()\n"
        "ip('link set tap5 master podman0')\n"
        "assert names() == ['podman0', 'tap5'], names()\n",
        *SOFTWARE_LINKS,
        "link add cilium_host type veth peer name cilium_net",
        "address add 10.1.2.1/32 dev cilium_host",
        "link set cilium_net up",
        "link set cilium_host up",
    )
