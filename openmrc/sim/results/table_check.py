"""Check that the simulator's computed routes agree with the fabric's own tables.

`switch.route` computes the next link from an EV's digits. The tables of `fabric.tables` hold the entries to install: an
EV becomes the uSIDs of its path, and `fabric.walk` follows them hop by hop, independently. Both are evaluated for every
EV of every queue pair of a run, the only ones that data and acknowledgements use, and compared port by port.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.core.rows import column
from openmrc.engine.state.tables import Engine
from openmrc.errors import ConfigError, MrcError
from openmrc.fabric.addressing.paths import Choice, Relation, packets
from openmrc.fabric.addressing.sid_tables import Tables, build_tables, entry_text
from openmrc.fabric.addressing.usid import UsidPlan, prefix_text, usid_plan
from openmrc.fabric.addressing.walk import AMBIGUOUS, Cabling, Fate, Lookup, walk
from openmrc.fabric.model.shape import PlaneShape
from openmrc.fabric.model.topology import Topology
from openmrc.sim.network.forwarding.path_of_ev import choices, links_of
from openmrc.sim.network.network_tables import Network, Routing


@dataclass(frozen=True)
class TableCheck:
    pairs: int  # ordered pairs of NICs
    evs: int  # EVs of queue pairs
    hops: int  # decisions of switches
    entries: int  # of the tables


@dataclass(frozen=True)
class Flights:
    """EVs in use, as columns."""

    source: Ints
    destination: Ints
    plane: Ints
    ev: Ints

    def rows(self, which: Ints) -> Flights:
        return Flights(self.source[which], self.destination[which], self.plane[which], self.ev[which])


def flights_of(engine: Engine) -> Flights:
    """Return the EVs of every queue pair, from its NIC to its peer."""
    rotation = column(engine.evs, "rotation").astype(np.int64)
    qp = column(engine.rotations, "qp")[rotation]
    peer = column(engine.qps, "peer")[qp]
    return Flights(
        source=column(engine.qps, "endpoint")[qp].astype(np.int64),
        destination=column(engine.peers, "address")[peer].astype(np.int64),
        plane=column(engine.evs, "port").astype(np.int64),
        ev=column(engine.evs, "value").astype(np.int64),
    )


def check(topology: Topology, network: Network, flights: Flights, tables: Tables | None = None) -> TableCheck:
    """Compare; raise an MrcError that names switch, entry and EV of the first difference."""
    if network.config[0].routing != Routing.ENTROPY:
        raise ConfigError(
            "check_tables: this transport's switches choose by hash or load, not by uSID tables; remove check_tables"
        )
    plan = usid_plan(topology)
    checker = _Checker(plan, build_tables(plan) if tables is None else tables, network)
    hops = sum(checker.compare(each, how, flights.rows(which)) for each, how, which in _groups(topology, flights))
    pairs = len(np.unique(flights.source * topology.nics + flights.destination))
    return TableCheck(pairs, len(flights.ev), hops, len(checker.tables))


def _groups(topology: Topology, flights: Flights) -> list[tuple[Choice, Relation, Ints]]:
    """Group the flights by plane, by the relation of their ends, and by the path of their EV."""
    found = []
    for shape in topology.planes:
        mine = np.flatnonzero(flights.plane == shape.plane)
        uplink, core, long = choices(shape, flights.ev[mine])
        how = _relations(shape, flights.source[mine], flights.destination[mine])
        code = ((how * max(1, shape.t0_up) + uplink) * max(1, shape.t1_up) + core) * max(1, shape.long) + long
        order = np.argsort(code, kind="stable")
        _, starts = np.unique(code[order], return_index=True)
        for which in np.split(order, starts[1:]) if len(mine) else []:
            at = which[0]
            choice = Choice(shape.plane, int(uplink[at]), int(core[at]), int(long[at]))
            found.append((choice, Relation(int(how[at])), mine[which]))
    return found


def _relations(shape: PlaneShape, source: Ints, destination: Ints) -> Ints:
    here, there = shape.t0_of(source), shape.t0_of(destination)
    far = here // shape.t0_per_site != there // shape.t0_per_site
    how = np.where(far, Relation.FAR, np.where(shape.pod_of(here) == shape.pod_of(there), Relation.POD, Relation.SITE))
    return np.where(here == there, Relation.T0, how).astype(np.int64)


class _Checker:
    """Walks groups of flights through the tables and through the loop's computation."""

    def __init__(self, plan: UsidPlan, tables: Tables, network: Network) -> None:
        self.plan = plan
        self.tables = tables
        self.network = network
        self.cabling = Cabling(plan.topology)
        self.lookups = [Lookup(plan.topology, tables, sids.block) for sids in plan.planes]

    def compare(self, choice: Choice, how: Relation, flights: Flights) -> int:
        """Compare flights on the same path; return the number of equal decisions."""
        topology, plane = self.plan.topology, choice.plane
        links = links_of(self.network, flights.source, flights.destination, flights.plane, flights.ev)
        computed = np.where(links >= 0, topology.link_port[links], -1)
        stack, _ = packets(self.plan.planes[plane], flights.source, flights.destination, how, choice)
        walked = walk(topology, self.tables, self.lookups[plane], self.cabling, flights.source, plane, stack)
        ports = np.full_like(computed, -1)
        width = min(walked.trace.shape[1], ports.shape[1])
        ports[:, :width] = walked.trace[:, :width] >> 4
        same = (ports == computed).all(axis=1) & (walked.fate == Fate.ARRIVED) & (walked.last == flights.destination)
        if not same.all():
            row = int(np.flatnonzero(~same)[0])
            self._refuse(flights, row, links[row], computed[row], ports[row], walked.trace[row], stack[row])
        return int((computed[:, 1:] >= 0).sum())

    def _refuse(
        self, flights: Flights, row: int, links: Ints, computed: Ints, ports: Ints, trace: Ints, stack: Ints
    ) -> None:
        """Raise the error that describes the first difference."""
        topology, plane = self.plan.topology, int(flights.plane[row])
        place = int(np.flatnonzero(ports != computed)[0])
        switch = int(topology.link_source[links[place]])
        shifts = int(trace[place - 1]) & 15
        entry, usid = self._entry(plane, switch, stack, shifts)
        address = self.plan.address(plane, [int(sid) for sid in stack if sid])
        raise MrcError(
            f"check_tables: EV {int(flights.ev[row]):#x} of {topology.name(int(flights.source[row]))} to "
            f"{topology.name(int(flights.destination[row]))} on plane {plane} ({address}): {topology.name(switch)} "
            f"has {entry} for uSID {usid:04x}, the simulator leaves by port {int(computed[place])}"
        )

    def _entry(self, plane: int, switch: int, stack: Ints, shifts: int) -> tuple[str, int]:
        """Describe the entry that applies at a switch, and the uSID of the lookup."""
        usid = int(stack[min(shifts, len(stack) - 1)])
        row = self._row(plane, switch, usid)
        if row >= 0 and self.tables.port[row] < 0 and shifts + 1 < len(stack):  # its own uSID: the next one applies
            usid = int(stack[shifts + 1])
            row = self._row(plane, switch, usid)
        if row >= 0:
            return f"the entry {entry_text(self.tables, row)!r}", usid
        prefix = prefix_text(self.plan.planes[plane].block, usid)
        return (f"two entries {prefix}" if row == AMBIGUOUS else f"no entry {prefix}"), usid

    def _row(self, plane: int, switch: int, usid: int) -> int:
        return int(self.lookups[plane].entry(np.array([switch]), np.array([usid]))[0])
