"""Remote NICs: how the data path reaches them, and how it knows who sent a datagram."""

from __future__ import annotations

import numpy as np

from openmrc.engine import lifecycle
from openmrc.engine.tables import NONE
from openmrc.live.api.attributes import PeerAddress
from openmrc.live.api.errors import NoRoomError
from openmrc.live.datapath import receive
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.runtime import Motor
from openmrc.live.host.sockets import CarrierOf
from openmrc.wire.entropy import flow_label
from openmrc.wire.icrc import flow


class Remotes:
    """The book of remote NICs: a number for each, kept while a queue pair uses it."""

    def __init__(self, motor: Motor, most: int, carrier_of: CarrierOf | None) -> None:
        self._motor = motor
        self._carrier_of = carrier_of
        self._numbers: dict[PeerAddress, int] = {}
        self._users = [0] * most

    def address(self, number: int) -> PeerAddress | None:
        """Return the address of a remote NIC, None if the number is free."""
        return next((address for address, each in self._numbers.items() if each == number), None)

    def take(self, address: PeerAddress, now: int) -> int:
        """Return the number of a remote NIC, noting it first if it is new. Call inside the motor."""
        number = self._numbers.get(address)
        if number is None:
            number = next((free for free, users in enumerate(self._users) if users == 0), NONE)
            if number == NONE:
                raise NoRoomError(f"max_peers: all {len(self._users)} are in use")
            self._note(address, number)
            lifecycle.open_peer(self._motor.engine, now, self._motor.engine.endpoints[0].peer_base + number, number)
            self._numbers = {known: each for known, each in self._numbers.items() if each != number}
            self._numbers[address] = number
        self._users[number] += 1
        return number

    def give_back(self, number: int) -> None:
        """Note that one queue pair less uses it. Call inside the motor."""
        self._users[number] -= 1
        if self._users[number] == 0:
            self._forget(number)
            self._numbers = {known: each for known, each in self._numbers.items() if each != number}

    def _note(self, address: PeerAddress, number: int) -> None:
        tables, ports, nic = self._motor.wires, self._motor.ports, self._motor.nic
        for plane, text in enumerate(address.planes):
            there = PlaneAddress.parse(text, f"remote, plane {plane}")
            here = ports.addresses[plane]
            index = number * nic.planes + plane
            tables.prefixes[2 * index : 2 * index + 2] = 0
            tables.flows[2 * index] = flow(here.ip, there.ip, there.port)
            tables.flows[2 * index + 1] = flow(there.ip, here.ip, here.port)
            for k, value in enumerate(ports.evs(plane)):
                target = there
                if self._carrier_of is not None:
                    target = PlaneAddress(PlaneAddress.parse(self._carrier_of(text, plane, value)).ip, there.port)
                name = target.packed(flow_label(ports.placement, value))
                tables.names[index * nic.evs + k] = np.frombuffer(name.ljust(32, b"\0"), np.int64)
                tables.remotes[index].name_length = len(name)
            senders = address.source_ports[plane] if address.source_ports else ()
            for port in (*senders, 0):
                self._note_source(there, plane, port, number)

    def _note_source(self, there: PlaneAddress, plane: int, port: int, number: int) -> None:
        high, low = there.words()
        tables = self._motor.wires
        row = tables.sources[receive.source_slot(tables, plane, high, low, port)]
        if row.used == 1 and port == 0:
            return  # another endpoint at the same address; the exact ports tell them apart
        row.used, row.high, row.low, row.plane, row.port, row.number = 1, high, low, plane, port, number

    def _forget(self, number: int) -> None:
        """Take a remote out of the hash, by building it anew: open hashing knows no holes."""
        tables = self._motor.wires
        keep = [
            (row["high"], row["low"], row["plane"], row["port"], row["number"])
            for row in np.asarray(tables.sources)
            if row["used"] and row["number"] != number
        ]
        np.asarray(tables.sources)["used"] = 0
        for high, low, plane, port, owner in keep:
            row = tables.sources[receive.source_slot(tables, int(plane), int(high), int(low), int(port))]
            row.used, row.high, row.low, row.plane, row.port, row.number = 1, high, low, plane, port, owner
        for plane in range(self._motor.nic.planes):
            tables.remotes[number * self._motor.nic.planes + plane].name_length = 0
