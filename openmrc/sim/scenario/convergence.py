"""Convergence of routing and bonds after a failure: the events that they add to the faults of a run.

The switches of the baselines run a routing protocol, their NICs a bond. A cable that is dead in one direction or both
(down, or losing everything) is withdrawn from all routing tables `reroute_delay_us` later, including the route to a NIC
at its end; it is restored after it has worked for as long. A NIC whose own cable is down in both directions stops using
that port `failover_delay_us` later. Shorter changes have no effect, as with carrier delays and dampening.

MRC does none of this: its switches' tables are static (arXiv 2605.04333), its NICs react themselves.
"""

from collections.abc import Iterator

import numpy as np

from openmrc.fabric.model.topology import NodeKind, Topology
from openmrc.sim.loop.fault_events import FaultKind, Faults, faults
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Routing
from openmrc.sim.scenario.timeline import PORTS_PER_NIC
from openmrc.units import NEVER, ps_from_us

_DEAD = {FaultKind.LINK_DOWN: 1, FaultKind.LINK_LOSS: 10**9}  # the value from which on nothing crosses a link
Change = tuple[int, int, bool]  # at, subject, whether it is now dead
Row = tuple[int, int, int, int]  # of faults


def converging(topology: Topology, broken: Faults, settings: NetworkSettings) -> Faults:
    """Return the faults with the times at which routing and bonds react."""
    if settings.routing == Routing.ENTROPY or not len(broken.at):
        return broken
    routes = _routes(topology, broken, ps_from_us(settings.reroute_delay_us))
    bonds = _bonds(broken, ps_from_us(settings.failover_delay_us))
    return faults(*np.array([*_rows(broken), *routes, *bonds], np.int64).T)


def _routes(topology: Topology, broken: Faults, delay: int) -> Iterator[Row]:
    """Yield withdrawals from the routing tables and restorations: both directions of a cable, or its NIC port."""
    for at, cable, dead in _lasting(_cables(topology, broken), delay):
        reverse = int(topology.link_reverse[cable])
        ports = [
            int(topology.link_source[link]) * PORTS_PER_NIC + int(topology.link_port[link])
            for link in (cable, reverse)
            if topology.node_kind[topology.link_source[link]] == NodeKind.NIC
        ]
        for port in ports:
            yield at, FaultKind.PORT_WITHDRAWN, port, dead
        if not ports:
            for link in (cable, reverse):
                yield at, FaultKind.ROUTE_WITHDRAWN, link, dead


def _cables(topology: Topology, broken: Faults) -> Iterator[Change]:
    """Yield the times at which a cable, named by its lower link, fails or returns."""
    links: set[tuple[int, int]] = set()  # dead ones, by the kind of their fault
    dead: set[int] = set()
    for at, kind, link, value in _rows(broken):
        if kind not in _DEAD:
            continue
        (links.add if value >= _DEAD[FaultKind(kind)] else links.discard)((kind, link))
        reverse = int(topology.link_reverse[link])
        cable = min(link, reverse)
        is_dead = any((each, way) in links for each in _DEAD for way in (link, reverse))
        if is_dead != (cable in dead):
            (dead.add if is_dead else dead.discard)(cable)
            yield at, cable, is_dead


def _bonds(broken: Faults, delay: int) -> Iterator[Row]:
    changes = ((at, port, value == 1) for at, kind, port, value in _rows(broken) if kind == FaultKind.PORT_DOWN)
    for at, port, gone in _lasting(changes, delay):
        yield at, FaultKind.BOND_LEFT, port, gone


def _rows(broken: Faults) -> Iterator[Row]:
    columns = (part.tolist() for part in (broken.at, broken.kind, broken.subject, broken.value))
    return zip(*columns, strict=True)


def _lasting(changes: Iterator[Change], delay: int) -> Iterator[Change]:
    """Yield the changes that last for `delay` (ps), delayed by it; shorter ones cancel."""
    by_subject: dict[int, list[tuple[int, bool]]] = {}
    for at, subject, state in changes:
        by_subject.setdefault(subject, []).append((at, state))
    for subject, series in by_subject.items():
        known = False
        for number, (at, state) in enumerate(series):
            until = series[number + 1][0] if number + 1 < len(series) else NEVER
            if until - at > delay and state != known:
                known = state
                yield at + delay, subject, state
