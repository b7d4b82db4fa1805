"""What kernels write for a remote NIC is what `host.peers` writes for programs in Python."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from openmrc.live.attributes import ContextAttr, PeerAddress
from openmrc.live.datapath import remote_nics
from openmrc.live.datapath.remote_nics import Way
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.peers import Peers
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import Sockets
from openmrc.live.host.tuning import settings_for

ATTR = ContextAttr(max_qp=1, max_peers=4, max_mr=1, max_cq=8, evs_per_plane=2)
PORTS = ((50001, 50002), (51025, 51026))
WRITTEN = ("names", "flows", "peers")


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


def ways(runtime: EndpointRuntime) -> np.ndarray:
    rows = np.zeros((2, len(Way)), np.int64)
    for plane, text in enumerate(theirs(runtime)):
        ours, there = runtime.sockets.addresses[plane], PlaneAddress.parse(text)
        rows[plane] = (ours.ip.version, *ours.halves(), *there.halves(), there.port, ours.port, 0)
    return rows


def test_a_peer_is_stored_as_in_python(runtime: EndpointRuntime) -> None:
    peers = Peers(runtime, 4, None)
    peers.store(peers.prepare(PeerAddress(planes=theirs(runtime), source_ports=PORTS)), 2)
    expected = {name: np.asarray(getattr(runtime.datapath, name)).copy() for name in WRITTEN}
    for name in (*WRITTEN, "sources"):
        np.asarray(getattr(runtime.datapath, name)).view(np.uint8)[:] = 0
    ports = np.array(PORTS, np.int64)
    assert remote_nics.add(runtime.engine, runtime.datapath, 5, 2, ways(runtime), ports) == 1
    for name, rows in expected.items():
        assert np.array_equal(np.asarray(getattr(runtime.datapath, name)), rows), name
    assert runtime.engine.peers[2].address == 2


def test_a_source_of_another_peer_is_refused_and_nothing_is_kept(runtime: EndpointRuntime) -> None:
    rows, first, second = ways(runtime), np.array(PORTS, np.int64), np.array(PORTS, np.int64)
    second[0, 0] = 50009
    assert remote_nics.add(runtime.engine, runtime.datapath, 5, 0, rows, first) == 1
    assert remote_nics.add(runtime.engine, runtime.datapath, 5, 1, rows, second) == 0
    used = [row for row in runtime.datapath.sources if row.used]
    assert sorted((row.port, row.peer) for row in used) == [(port, 0) for plane in PORTS for port in plane]


def test_a_removed_peer_leaves_nothing_behind(runtime: EndpointRuntime) -> None:
    before = [np.asarray(getattr(runtime.datapath, name)).copy() for name in ("flows", "prefixes", "peers")]
    rows, ports = ways(runtime), np.array(PORTS, np.int64)
    remote_nics.add(runtime.engine, runtime.datapath, 5, 1, rows, ports)
    remote_nics.remove(runtime.datapath, 1, rows, ports)
    after = [np.asarray(getattr(runtime.datapath, name)) for name in ("flows", "prefixes", "peers")]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
    assert not any(row.used for row in runtime.datapath.sources)
