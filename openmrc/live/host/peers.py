"""Remote NICs: their addresses for sending, and the identification of received datagrams."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import numpy as np
from numpy.typing import NDArray

from openmrc.engine import lifecycle
from openmrc.engine.state.tables import NONE
from openmrc.errors import InvalidArgumentError
from openmrc.live.attributes import PeerAddress
from openmrc.live.datapath import sources
from openmrc.live.datapath.rows import NAME_WORDS
from openmrc.live.errors import BusyError, NoRoomError
from openmrc.live.host.addresses import PlaneAddress, host_of
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import CarrierOf
from openmrc.wire.entropy import flow_label
from openmrc.wire.icrc import flow

_Key = tuple[tuple[PlaneAddress, ...], tuple[tuple[int, ...], ...], bool]


@dataclass(frozen=True)
class PeerRows:
    """Rows of the data path's tables for one remote NIC."""

    address: PeerAddress
    key: _Key  # equal for all spellings of the same address
    flows: NDArray[np.uint8]
    names: NDArray[np.int64]
    name_lengths: list[int]  # of each plane
    sources: NDArray[np.int64]


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
        here = self._runtime.sockets.addresses
        flows = [(flow(ours.ip, theirs.ip, theirs.port), flow(theirs.ip, ours.ip, ours.port))
                 for ours, theirs in zip(here, planes, strict=True)]  # fmt: skip
        names = [self._names(address, plane, there) for plane, there in enumerate(planes)]
        packed = np.frombuffer(b"".join(name.ljust(32, b"\0") for plane in names for name in plane), np.int64)
        return PeerRows(
            address,
            key,
            np.stack([side for pair in flows for side in pair]),
            packed.reshape(-1, NAME_WORDS),
            [len(plane[0]) for plane in names],
            self._source_rows(address, planes),
        )

    def is_new(self, rows: PeerRows) -> bool:
        """Whether no queue pair uses this peer yet."""
        return rows.key not in self._numbers

    def destinations(self, rows: PeerRows) -> list[IPv4Address | IPv6Address]:
        """Return the first hop of each plane's packets: the peer's address, or the carrier of our first EV."""
        planes, _, _ = rows.key
        evs = self._runtime.sockets.evs
        return [self._first_hop(rows.address, plane, there, evs(plane)[0]).ip for plane, there in enumerate(planes)]

    def take(self, rows: PeerRows, now: int) -> int:
        """Return the index of a remote NIC, adding it if it is new. Call with the loop lock held.

        NoRoomError: the table is full. BusyError: another peer has one of its addresses.
        """
        peer = self._numbers.get(rows.key, NONE)
        if peer == NONE:
            peer = self._add(rows)
            lifecycle.open_peer(self._runtime.engine, now, self._runtime.engine.endpoints[0].peer_base + peer, peer)
        self._users[peer] += 1
        return peer

    def give_back(self, peer: int) -> None:
        """Drop one reference; the last one removes the peer. Call with the loop lock held."""
        self._users[peer] -= 1
        rows = self._rows[peer]
        if self._users[peer] > 0 or rows is None:
            return
        sources.remove(self._runtime.at, rows.sources, len(rows.sources), peer)
        nic = self._runtime.nic
        for plane in range(nic.planes):
            self._runtime.datapath.peers[peer * nic.planes + plane].name_length = 0
        self._rows[peer] = None
        del self._numbers[rows.key]
        self._free.append(peer)

    def _add(self, rows: PeerRows) -> int:
        if not self._free:
            raise NoRoomError(f"max_peers: all {len(self._users)} are in use")
        peer = self._free[-1]
        self.store(rows, peer)
        self._free.pop()
        self._rows[peer] = rows
        self._numbers[rows.key] = peer
        return peer

    def store(self, rows: PeerRows, peer: int) -> None:
        """Write a peer's rows into the data path's tables; BusyError if one of its sources is another's."""
        inserted = sources.insert(self._runtime.at, rows.sources, len(rows.sources), peer)
        if inserted < len(rows.sources):
            plane, port = (int(rows.sources[inserted, column]) for column in (sources.PLANE, sources.PORT))
            what = f"source port {port}" if port != sources.ANY_PORT else "any source port"
            raise BusyError(
                f"remote, plane {plane}: {rows.address.planes[plane]}, {what}: already belongs to another peer"
            )
        tables, nic = self._runtime.datapath, self._runtime.nic
        first, last = peer * nic.planes, (peer + 1) * nic.planes
        np.asarray(tables.prefixes)[2 * first : 2 * last] = 0
        np.asarray(tables.flows)[2 * first : 2 * last] = rows.flows
        np.asarray(tables.names)[first * nic.evs : last * nic.evs] = rows.names
        for plane, length in enumerate(rows.name_lengths):
            tables.peers[first + plane].name_length = length

    def _check_planes(self, planes: tuple[PlaneAddress, ...]) -> None:
        for plane, (ours, theirs) in enumerate(zip(self._runtime.sockets.addresses, planes, strict=True)):
            if ours.ip.version != theirs.ip.version:
                raise InvalidArgumentError(
                    f"remote, plane {plane}: address family mismatch: local {ours}, peer {theirs}"
                )
            if not theirs.is_unicast:
                raise InvalidArgumentError(f"remote, plane {plane}: {theirs} is not the address of one host")

    def _names(self, address: PeerAddress, plane: int, there: PlaneAddress) -> list[bytes]:
        """Return the sockaddr of one plane for each local entropy value."""
        ports = self._runtime.sockets
        return [
            self._first_hop(address, plane, there, value).packed(flow_label(ports.placement, value))
            for value in ports.evs(plane)
        ]

    def _first_hop(self, address: PeerAddress, plane: int, there: PlaneAddress, ev: int) -> PlaneAddress:
        if self._carrier_of is None:
            return there
        carrier = self._carrier_of(host_of(address.planes[plane]), plane, ev)
        return PlaneAddress(PlaneAddress.parse(carrier).ip, there.port)

    def _source_rows(self, address: PeerAddress, planes: tuple[PlaneAddress, ...]) -> NDArray[np.int64]:
        """Return its permitted sources: the named source ports, or any port."""
        named = address.source_ports or ((),) * len(planes)
        if len(named) != len(planes):
            raise InvalidArgumentError(f"remote: source ports of {len(named)} planes, but {len(planes)} planes")
        rows = []
        for plane, (there, exact) in enumerate(zip(planes, named, strict=True)):
            wrong = next((port for port in exact if not 1 <= port <= 65535), None)
            if wrong is not None:
                raise InvalidArgumentError(f"remote, plane {plane}: source port {wrong} is not in 1..65535")
            ports = {*exact, sources.ANY_PORT} if address.any_source_port or not exact else set(exact)
            rows += [(plane, *there.halves(), port) for port in sorted(ports)]
        if len(rows) > self._source_share:
            raise NoRoomError(
                f"remote: {len(rows)} source ports exceed the limit of {self._source_share} per peer (evs_per_plane)"
            )
        return np.array(rows, np.int64).reshape(-1, sources.COLUMNS)
