"""Remote NICs: how the data path reaches them, and how it knows who sent a datagram."""

from __future__ import annotations

import numpy as np

from openmrc.engine import lifecycle
from openmrc.engine.tables import NONE
from openmrc.live.api.attributes import PeerAddress
from openmrc.live.api.errors import NoRoomError
from openmrc.live.datapath import receive
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import CarrierOf
from openmrc.wire.entropy import flow_label
from openmrc.wire.icrc import flow


class Peers:
    """The book of remote NICs: a peer for each, kept while a queue pair uses it."""

    def __init__(self, runtime: EndpointRuntime, most: int, carrier_of: CarrierOf | None) -> None:
        self._runtime = runtime
        self._carrier_of = carrier_of
        self._numbers: dict[PeerAddress, int] = {}
        self._users = [0] * most

    def address(self, peer: int) -> PeerAddress | None:
        """Return the address of a remote NIC, None if the peer is free."""
        return next((address for address, each in self._numbers.items() if each == peer), None)

    def take(self, address: PeerAddress, now: int) -> int:
        """Return the peer of a remote NIC, noting it first if it is new. Call inside the runtime."""
        peer = self._numbers.get(address)
        if peer is None:
            peer = next((free for free, users in enumerate(self._users) if users == 0), NONE)
            if peer == NONE:
                raise NoRoomError(f"max_peers: all {len(self._users)} are in use")
            self._note(address, peer)
            lifecycle.open_peer(self._runtime.engine, now, self._runtime.engine.endpoints[0].peer_base + peer, peer)
            self._numbers = {known: each for known, each in self._numbers.items() if each != peer}
            self._numbers[address] = peer
        self._users[peer] += 1
        return peer

    def give_back(self, peer: int) -> None:
        """Note that one queue pair less uses it. Call inside the runtime."""
        self._users[peer] -= 1
        if self._users[peer] == 0:
            self._forget(peer)
            self._numbers = {known: each for known, each in self._numbers.items() if each != peer}

    def _note(self, address: PeerAddress, peer: int) -> None:
        tables, ports, nic = self._runtime.datapath, self._runtime.sockets, self._runtime.nic
        for plane, text in enumerate(address.planes):
            there = PlaneAddress.parse(text, f"remote, plane {plane}")
            here = ports.addresses[plane]
            index = peer * nic.planes + plane
            tables.prefixes[2 * index : 2 * index + 2] = 0
            tables.flows[2 * index] = flow(here.ip, there.ip, there.port)
            tables.flows[2 * index + 1] = flow(there.ip, here.ip, here.port)
            for k, value in enumerate(ports.evs(plane)):
                target = there
                if self._carrier_of is not None:
                    target = PlaneAddress(PlaneAddress.parse(self._carrier_of(text, plane, value)).ip, there.port)
                name = target.packed(flow_label(ports.placement, value))
                tables.names[index * nic.evs + k] = np.frombuffer(name.ljust(32, b"\0"), np.int64)
                tables.peers[index].name_length = len(name)
            senders = address.source_ports[plane] if address.source_ports else ()
            for port in (*senders, 0):
                self._note_source(there, plane, port, peer)

    def _note_source(self, there: PlaneAddress, plane: int, port: int, peer: int) -> None:
        high, low = there.halves()
        tables = self._runtime.datapath
        row = tables.sources[receive.source_slot(tables, plane, high, low, port)]
        if row.used == 1 and port == 0:
            return  # another endpoint at the same address; the exact ports tell them apart
        row.used, row.high, row.low, row.plane, row.port, row.peer = 1, high, low, plane, port, peer

    def _forget(self, peer: int) -> None:
        """Take a remote out of the hash, by building it anew: open hashing knows no holes."""
        tables = self._runtime.datapath
        keep = [
            (row["high"], row["low"], row["plane"], row["port"], row["peer"])
            for row in np.asarray(tables.sources)
            if row["used"] and row["peer"] != peer
        ]
        np.asarray(tables.sources)["used"] = 0
        for high, low, plane, port, owner in keep:
            row = tables.sources[receive.source_slot(tables, int(plane), int(high), int(low), int(port))]
            row.used, row.high, row.low, row.plane, row.port, row.peer = 1, high, low, plane, port, owner
        for plane in range(self._runtime.nic.planes):
            tables.peers[peer * self._runtime.nic.planes + plane].name_length = 0
