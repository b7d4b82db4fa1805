"""Follow packets through the tables hop by hop, as switches do; `proof` does it by classes of packets."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.addressing.sid_tables import Action, Tables
from openmrc.fabric.model.shape import IntOrInts
from openmrc.fabric.model.topology import Int8s, Int32s, NodeKind, Topology

NONE = -1  # no entry
MARK = 16  # of a trace: more than any node consumes
AMBIGUOUS = -2  # two entries for one uSID; which one applies is undefined


class Fate(IntEnum):
    ARRIVED = 0  # at some NIC
    NO_ENTRY = 1  # no entry, or two, for the uSID on top
    NO_PORT = 2  # the entry names a port without a cable
    LOOP = 3  # still in transit after more hops than any correct path has

    @property
    def text(self) -> str:
        return ("arrives", "dropped, no entry (or two)", "dropped, no such port", "loops")[self]


class Cabling:
    """Maps each port to its directed link, and to the node at the other end of its cable; -1 where there is none."""

    def __init__(self, topology: Topology) -> None:
        self.ports = np.zeros(topology.nodes, dtype=np.int64)
        np.maximum.at(self.ports, topology.link_source, topology.link_port.astype(np.int64) + 1)
        self.first = np.concatenate([[0], np.cumsum(self.ports)])
        self._link = np.full(int(self.first[-1]), -1, dtype=np.int64)
        self._link[self.first[topology.link_source] + topology.link_port] = np.arange(topology.links)
        self._far = np.append(topology.link_destination, -1)

    def link(self, node: Ints, port: Ints) -> Ints:
        """Return the directed link out of each (node, port), -1 where there is no cable."""
        there = (port >= 0) & (port < self.ports[node])
        return np.where(there, self._link[np.where(there, self.first[node] + port, 0)], -1)

    def beyond(self, node: Ints, port: Ints) -> Ints:
        """Return the node at the other end of each (node, port), -1 where there is no cable."""
        far: Ints = self._far[self.link(node, port)]
        return far


class Lookup:
    """Find the entry of (switch, uSID) within one block: a matrix of rows of the tables."""

    def __init__(self, topology: Topology, tables: Tables, block: int) -> None:
        rows = np.flatnonzero(tables.block == block)
        switches, at_switch = np.unique(tables.switch[rows], return_inverse=True)
        usids, at_usid = np.unique(tables.usid[rows], return_inverse=True)
        width = len(usids) + 1  # the last column and row stay empty: unknown uSIDs and switches
        self.row_of = np.full(topology.nodes, len(switches), dtype=np.int64)
        self.row_of[switches] = np.arange(len(switches))
        self.column_of = np.full(1 << 16, len(usids), dtype=np.int64)
        self.column_of[usids] = np.arange(len(usids))
        self.width = width
        self.matrix = np.full((len(switches) + 1) * width, NONE, dtype=np.int32)
        cell = at_switch.astype(np.int64) * width + at_usid
        self.matrix[cell] = rows
        again = rows[self.matrix[cell] != rows]  # overwritten by a later row of the same key
        self.twice = again.astype(np.int64)
        self.matrix[cell[self.matrix[cell] != rows]] = AMBIGUOUS

    def entry(self, switch: Ints, usid: Ints) -> Ints:
        """Return the row of each, NONE or AMBIGUOUS where there is not exactly one."""
        row: Ints = self.matrix[self.row_of[switch] * self.width + self.column_of[usid]].astype(np.int64)
        return row


@dataclass(frozen=True)
class Walked:
    fate: Int8s
    last: Ints  # the final node
    trace: Int32s  # one row a packet: a `mark` for each node it left, the NIC's first; -1 behind the last


def mark(port: IntOrInts, shifts: IntOrInts) -> IntOrInts:
    """Encode how a node was left: by which port, after how many consumed uSIDs."""
    return port * MARK + shifts


def walk(
    topology: Topology, tables: Tables, lookup: Lookup, cabling: Cabling, start: Ints, plane: int, stack: Ints
) -> Walked:
    """Send one packet from each NIC of `start` into a plane and follow all to their ends.

    `stack` has one row of uSIDs per packet, zero after the last.
    """
    count, depth = stack.shape
    stack = np.hstack([stack, np.zeros((count, 1), dtype=np.int64)])
    trace: Int32s = np.full((count, depth + 3), -1, dtype=np.int32)
    trace[:, 0] = mark(plane, 0)
    shifts = np.zeros(count, dtype=np.int64)
    node = cabling.beyond(start, np.full(count, plane, dtype=np.int64))
    used = np.ones(count, dtype=np.int64)  # ports left by so far
    fate: Int8s = np.full(count, Fate.LOOP, dtype=np.int8)
    live = np.flatnonzero(node >= topology.nics)
    fate[node < 0] = Fate.NO_PORT
    for _ in range(2 * depth + 4):  # a uN costs a lookup without moving
        row = lookup.entry(node[live], stack[live, 0])
        fate[live[row < 0]] = Fate.NO_ENTRY
        live, row = live[row >= 0], row[row >= 0]
        if not len(live):
            break
        action = tables.action[row]
        shifted = live[action != Action.ROUTE]
        stack[shifted, :-1] = stack[shifted, 1:]
        shifts[shifted] += 1
        stays = live[action == Action.UN]
        moving, port = live[action != Action.UN], tables.port[row[action != Action.UN]].astype(np.int64)
        beyond = cabling.beyond(node[moving], port)
        fate[moving[beyond < 0]] = Fate.NO_PORT
        moving, port, beyond = moving[beyond >= 0], port[beyond >= 0], beyond[beyond >= 0]
        node[moving] = beyond
        trace[moving, np.minimum(used[moving], depth + 2)] = mark(port, shifts[moving])
        used[moving] += 1
        at_nic = topology.node_kind[beyond] == NodeKind.NIC
        fate[moving[at_nic]] = Fate.ARRIVED
        onward = moving[~at_nic & (used[moving] <= depth + 2)]
        live = np.concatenate([stays, onward])
    return Walked(fate, node, trace)
