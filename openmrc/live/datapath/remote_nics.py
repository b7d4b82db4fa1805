"""Remote NICs in the data path's tables: how to send to them, and how to recognise their packets."""

from enum import IntEnum

from openmrc.core.calls import MATRIX, WORD
from openmrc.core.jit import entry, kernel
from openmrc.engine import lifecycle
from openmrc.live.datapath import handles, sources
from openmrc.live.datapath.rows import DataPath
from openmrc.wire.entropy import flow_label
from openmrc.wire.icrc import write_flow
from openmrc.wire.layout import Matrix

_INET, _INET6 = 2, 10
_INET_NAME, _INET6_NAME = 16, 28  # bytes of a sockaddr


class Way(IntEnum):
    """Columns of a plane's addresses; pairs of words hold an address as its bytes lie in a sockaddr."""

    VERSION = 0  # 4 or 6
    OUR_HIGH = 1
    OUR_LOW = 2
    THEIR_HIGH = 3
    THEIR_LOW = 4
    THEIR_PORT = 5  # UDP port on which the peer receives
    OUR_PORT = 6  # UDP port on which we receive
    SCOPE = 7  # interface index of a link-local address


@entry
def add_peer(at: int, peer: int, ways: Matrix, ports: Matrix) -> int:
    """Add a remote NIC as `peer`; return how many of its sources it has, all or those before one that it cannot have.

    That one belongs to another or there is no room; nothing is kept then. `ways` has a row of `Way` for each plane,
    `ports` its UDP source ports on that plane, any of them more than once. Call with the loop lock held, as below.
    """
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    for plane in range(len(datapath.planes)):
        for k in range(ports.shape[1]):
            if not sources.give(
                datapath, plane, ways[plane, Way.THEIR_HIGH], ways[plane, Way.THEIR_LOW], ports[plane, k], peer
            ):
                _take_sources(datapath, peer, ways, ports)
                return int(plane * ports.shape[1] + k)
    for plane in range(len(datapath.planes)):
        _write_flows(datapath, peer, plane, ways)
        _write_names(datapath, peer, plane, ways)
    lifecycle.open_peer(engine, datapath.nic[0].now, engine.endpoints[0].peer_base + peer, peer)
    return len(datapath.planes) * int(ports.shape[1])


@entry
def remove_peer(at: int, peer: int, ways: Matrix, ports: Matrix) -> int:
    """Remove a remote NIC that was added with these arguments; return 0."""
    datapath = handles.datapath_at(at)
    _take_sources(datapath, peer, ways, ports)
    planes = len(datapath.planes)
    for plane in range(planes):
        datapath.peers[peer * planes + plane].name_length = 0
        for flow in range(2 * (peer * planes + plane), 2 * (peer * planes + plane) + 2):
            for byte in range(datapath.flows.shape[1]):
                datapath.flows[flow, byte] = 0
            for word in range(datapath.prefixes.shape[1]):
                datapath.prefixes[flow, word] = 0
    return 0


ENTRIES = tuple((each, (WORD, WORD, MATRIX, MATRIX)) for each in (add_peer, remove_peer))


@kernel
def _take_sources(datapath: DataPath, peer: int, ways: Matrix, ports: Matrix) -> None:
    for plane in range(len(datapath.planes)):
        for k in range(ports.shape[1]):
            high, low = ways[plane, Way.THEIR_HIGH], ways[plane, Way.THEIR_LOW]
            sources.take_back(datapath, plane, high, low, ports[plane, k], peer)


@kernel
def _write_flows(datapath: DataPath, peer: int, plane: int, ways: Matrix) -> None:
    way = ways[plane]
    flow = 2 * (peer * len(datapath.planes) + plane)
    version, port = way[Way.VERSION], way[Way.THEIR_PORT]
    our_high, our_low = way[Way.OUR_HIGH], way[Way.OUR_LOW]
    their_high, their_low = way[Way.THEIR_HIGH], way[Way.THEIR_LOW]
    write_flow(datapath.flows[flow], version, our_high, our_low, their_high, their_low, port)
    write_flow(datapath.flows[flow + 1], version, their_high, their_low, our_high, our_low, way[Way.OUR_PORT])


@kernel
def _write_names(datapath: DataPath, peer: int, plane: int, ways: Matrix) -> None:
    """Write the sockaddr of a plane for each of our entropy values, see ip(7) and ipv6(7)."""
    way = ways[plane]
    nic = datapath.nic[0]
    remote = peer * nic.planes + plane
    port = way[Way.THEIR_PORT]
    swapped = (port & 0xFF) << 8 | port >> 8
    for k in range(nic.evs):
        name = datapath.names[remote * nic.evs + k]
        if way[Way.VERSION] == 4:
            name[0] = _INET | swapped << 16 | _signed(way[Way.THEIR_LOW]) << 32
            name[1] = 0
            name[2] = 0
            name[3] = 0
        else:
            label = flow_label(nic.placement, datapath.ev_values[plane, k])
            big_endian = (label & 0xFF) << 24 | (label & 0xFF00) << 8 | (label >> 8 & 0xFF00) | label >> 24
            name[0] = _INET6 | swapped << 16 | _signed(big_endian) << 32
            name[1] = way[Way.THEIR_HIGH]
            name[2] = way[Way.THEIR_LOW]
            name[3] = way[Way.SCOPE]
    datapath.peers[remote].name_length = _INET_NAME if way[Way.VERSION] == 4 else _INET6_NAME


@kernel
def _signed(word: int) -> int:
    """Return 32 bits as a signed number, so that they fit the upper half of a word."""
    return word - ((word >> 31 & 1) << 32)
