"""Remote NICs: their addresses for sending, and the identification of received datagrams."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import numpy as np
from numpy.typing import NDArray

from openmrc.engine.state.tables import NONE
from openmrc.errors import InvalidArgumentError
from openmrc.live.attributes import PeerAddress
from openmrc.live.datapath import remote_nics, sources
from openmrc.live.datapath.rows import NAME_BYTES
from openmrc.live.errors import BusyError, NoRoomError
from openmrc.live.host.addresses import PlaneAddress, host_of
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import CarrierOf
from openmrc.wire.entropy import flow_label
from openmrc.wire.icrc import halves

_Key = tuple[tuple[PlaneAddress, ...], tuple[tuple[int, ...], ...], bool]


@dataclass(frozen=True)
class PeerRows:
    """What the data path's tables hold of one remote NIC."""

    address: PeerAddress
    key: _Key  # equal for all spellings of the same address
    ways: NDArray[np.int64]
    ports: NDArray[np.int64]  # source ports, a row for each plane; short rows repeat their first
    carriers: NDArray[np.int64] | None  # where packets are sent, if not to its own addresses


class Peers:
    """The table of remote NICs; an entry exists while a queue pair uses it."""

    def __init__(self, runtime: EndpointRuntime, most: int, carrier_of: CarrierOf | None) -> None:
        self._runtime = runtime
        self._carrier_of = carrier_of
        self._numbers: dict[_Key, int] = {}
        self._rows: list[PeerRows | None] = [None] * most
        self._users = [0] * most
        self._free = list(range(most - 1, -1, -1))
        # Every peer may use the same share of the source table, and all together half of it.
        self._source_share = len(runtime.datapath.sources) // 2 // most

    def address(self, peer: int) -> PeerAddress | None:
        """Return the address of a remote NIC, None if the peer is free."""
        rows = self._rows[peer] if 0 <= peer < len(self._rows) else None
        return rows.address if rows is not None else None

    def path(self, peer: int, plane: int, ev: int) -> str:
        """Return where packets of an EV to a remote NIC are sent: a carrier, or the peer's address on the plane."""
        address = self.address(peer)
        if address is None:
            return ""
        host = host_of(address.planes[plane])
        return host if self._carrier_of is None else self._carrier_of(host, plane, ev)

    def prepare(self, address: PeerAddress) -> PeerRows:
        """Compute everything that `take` stores, to keep the critical section short.

        ConfigError, InvalidArgumentError: an address that cannot be a peer of these planes.
        """
        planes = tuple(PlaneAddress.parse(text, f"remote, plane {plane}") for plane, text in enumerate(address.planes))
        key = planes, address.source_ports, address.any_source_port
        number = self._numbers.get(key, NONE)
        known = self._rows[number] if number != NONE else None
        if known is not None and known.key == key:
            return known
        self._check_planes(planes)
        ways = [
            (ours.ip.version, *halves(ours.ip), *halves(theirs.ip), theirs.port, ours.port, theirs.scope)
            for ours, theirs in zip(self._runtime.sockets.addresses, planes, strict=True)
        ]
        ports = self._source_ports(address)
        return PeerRows(address, key, np.array(ways), ports, self._carriers(address, planes))

    def is_new(self, rows: PeerRows) -> bool:
        """Whether no queue pair uses this peer yet."""
        return rows.key not in self._numbers

    def destinations(self, rows: PeerRows) -> list[IPv4Address | IPv6Address]:
        """Return the first hop of each plane's packets: the peer's address, or the carrier of our first EV."""
        planes, _, _ = rows.key
        evs = self._runtime.sockets.evs
        return [self._first_hop(rows.address, plane, there, evs(plane)[0]).ip for plane, there in enumerate(planes)]

    def take(self, rows: PeerRows) -> int:
        """Return the index of a remote NIC, adding it if it is new. Call with the loop lock held.

        NoRoomError: the table is full. BusyError: another peer has one of its addresses.
        """
        peer = self._numbers.get(rows.key, NONE)
        if peer == NONE:
            peer = self._add(rows)
        self._users[peer] += 1
        return peer

    def give_back(self, peer: int) -> None:
        """Drop one reference; the last one removes the peer. Call with the loop lock held."""
        self._users[peer] -= 1
        rows = self._rows[peer]
        if self._users[peer] > 0 or rows is None:
            return
        remote_nics.remove_peer(self._runtime.at, peer, rows.ways, rows.ports)
        self._rows[peer] = None
        del self._numbers[rows.key]
        self._free.append(peer)

    def _add(self, rows: PeerRows) -> int:
        if not self._free:
            raise NoRoomError(f"max_peers: all {len(self._users)} are in use")
        peer = self._free[-1]
        given = remote_nics.add_peer(self._runtime.at, peer, rows.ways, rows.ports)
        if given < rows.ports.size:
            plane, port = given // rows.ports.shape[1], rows.ports.item(given)
            what = f"source port {port}" if port != sources.ANY_PORT else "any source port"
            raise BusyError(
                f"remote, plane {plane}: {rows.address.planes[plane]}, {what}: already belongs to another peer"
            )
        if rows.carriers is not None:
            first = peer * len(rows.carriers)
            np.asarray(self._runtime.datapath.names)[first : first + len(rows.carriers)] = rows.carriers
        self._free.pop()
        self._rows[peer] = rows
        self._numbers[rows.key] = peer
        return peer

    def _check_planes(self, planes: tuple[PlaneAddress, ...]) -> None:
        for plane, (ours, theirs) in enumerate(zip(self._runtime.sockets.addresses, planes, strict=True)):
            if ours.ip.version != theirs.ip.version:
                raise InvalidArgumentError(
                    f"remote, plane {plane}: address family mismatch: local {ours}, peer {theirs}"
                )
            if not theirs.is_unicast:
                raise InvalidArgumentError(f"remote, plane {plane}: {theirs} is not the address of one host")

    def _carriers(self, address: PeerAddress, planes: tuple[PlaneAddress, ...]) -> NDArray[np.int64] | None:
        """Return the sockaddr of each plane and local entropy value, if packets are sent by carriers."""
        if self._carrier_of is None:
            return None
        ports = self._runtime.sockets
        names = [
            self._first_hop(address, plane, there, value).packed(flow_label(ports.placement, value))
            for plane, there in enumerate(planes)
            for value in ports.evs(plane)
        ]
        packed = b"".join(name.ljust(NAME_BYTES, b"\0") for name in names)
        return np.frombuffer(packed, np.int64).reshape(len(names), -1)

    def _first_hop(self, address: PeerAddress, plane: int, there: PlaneAddress, ev: int) -> PlaneAddress:
        if self._carrier_of is None:
            return there
        carrier = self._carrier_of(host_of(address.planes[plane]), plane, ev)
        return PlaneAddress(PlaneAddress.parse(carrier).ip, there.port)

    def _source_ports(self, address: PeerAddress) -> NDArray[np.int64]:
        """Return its permitted sources: the named source ports, or any port."""
        named = address.source_ports or ((),) * len(address.planes)
        if len(named) != len(address.planes):
            raise InvalidArgumentError(f"remote: source ports of {len(named)} planes, but {len(address.planes)} planes")
        rows = []
        for plane, exact in enumerate(named):
            wrong = next((port for port in exact if not 1 <= port <= 65535), None)
            if wrong is not None:
                raise InvalidArgumentError(f"remote, plane {plane}: source port {wrong} is not in 1..65535")
            rows.append(sorted({*exact, sources.ANY_PORT} if address.any_source_port or not exact else set(exact)))
        count, longest = sum(map(len, rows)), max(map(len, rows))
        if count > self._source_share:
            raise NoRoomError(
                f"remote: {count} source ports exceed the limit of {self._source_share} per peer (evs_per_plane)"
            )
        return np.array([row + row[:1] * (longest - len(row)) for row in rows])
