"""What is written for a remote NIC, against the codec's own flows and the kernel's addresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from openmrc.errors import BusyError
from openmrc.live.attributes import ContextAttr, PeerAddress
from openmrc.live.datapath.sources import find_source
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.peers import Peers
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import Sockets
from openmrc.live.host.tuning import settings_for
from openmrc.wire.icrc import flow, halves

ATTR = ContextAttr(max_qp=1, max_peers=4, max_mr=1, max_cq=8, evs_per_plane=2)
PORTS = ((50001, 50002), (51025, 51026))
WRITTEN = ("flows", "prefixes", "peers")


@pytest.fixture(params=[("127.0.0.1:47911", "127.0.0.2:47911"), ("[::1]:47911", "[::1]:47912")])
def runtime(request: pytest.FixtureRequest) -> Iterator[EndpointRuntime]:
    ports = Sockets(request.param, ATTR)
    try:
        yield EndpointRuntime(ports, ATTR, settings_for(ports, ports.mtu), capturing=False)
    finally:
        ports.close()


def theirs(runtime: EndpointRuntime) -> tuple[str, ...]:
    if runtime.sockets.addresses[0].ip.version == 4:
        return "127.200.0.1:4791", "127.0.0.4:4999"
    return "[fd00:ff::1]:4791", "[2001:db8::2]:4999"


def theirs_on(runtime: EndpointRuntime) -> list[tuple[PlaneAddress, PlaneAddress]]:
    return list(zip(runtime.sockets.addresses, map(PlaneAddress.parse, theirs(runtime)), strict=True))


def written(runtime: EndpointRuntime) -> dict[str, np.ndarray]:
    """Return what a peer leaves in the tables; rows of the source table that are not used hold what was there."""
    tables = {name: np.asarray(getattr(runtime.datapath, name)).copy() for name in WRITTEN}
    sources = np.asarray(runtime.datapath.sources)
    return tables | {"sources": np.sort(sources[sources["used"]], order=("plane", "port", "peer"))}


def address(runtime: EndpointRuntime, *ports: tuple[int, ...]) -> PeerAddress:
    return PeerAddress(planes=theirs(runtime), source_ports=ports)


def test_a_peer_is_written_as_its_packets_say(runtime: EndpointRuntime) -> None:
    peers, tables = Peers(runtime, 4, None), runtime.datapath
    other = "127.0.0.9" if runtime.sockets.addresses[0].ip.version == 4 else "::9"
    peers.take(peers.prepare(PeerAddress(planes=(other, other))))
    peer = peers.take(peers.prepare(address(runtime, *PORTS)))
    names: Any = tables.names
    for plane, (here, there) in enumerate(theirs_on(runtime)):
        row = peer * 2 + plane
        assert np.array_equal(tables.flows[2 * row], flow(here.ip, there.ip, there.port))
        assert np.array_equal(tables.flows[2 * row + 1], flow(there.ip, here.ip, here.port))
        length = tables.peers[row].name_length
        assert {name.tobytes()[:length] for name in names[2 * row : 2 * row + 2]} == {there.packed()}
        assert [find_source(tables, plane, *halves(there.ip), port) for port in (*PORTS[plane], 9)] == [peer, peer, -1]
    assert runtime.engine.peers[peer].address == peer


def test_a_source_of_another_peer_is_refused_and_nothing_is_kept(runtime: EndpointRuntime) -> None:
    peers = Peers(runtime, 4, None)
    peers.take(peers.prepare(address(runtime, *PORTS)))
    before = written(runtime)
    with pytest.raises(BusyError, match=r"plane 0: .* source port 50002"):
        peers.take(peers.prepare(address(runtime, (50000, 50002), PORTS[1])))
    with pytest.raises(BusyError, match=r"plane 1: .* source port 51025"):
        peers.take(peers.prepare(address(runtime, (50009, 50010), PORTS[1])))
    assert all(np.array_equal(rows, before[name]) for name, rows in written(runtime).items())


def test_a_removed_peer_leaves_nothing_behind(runtime: EndpointRuntime) -> None:
    before, peers = written(runtime), Peers(runtime, 4, None)
    peer = peers.take(peers.prepare(address(runtime, (50001,), PORTS[1])))
    peers.give_back(peer)
    assert all(np.array_equal(rows, before[name]) for name, rows in written(runtime).items())
