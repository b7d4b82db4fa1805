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

_EVERYTHING = 10**9  # LINK_LOSS of 100 %
Change = tuple[int, int, bool]  # at, subject, whether it is now dead


def converging(topology: Topology, broken: Faults, settings: NetworkSettings) -> Faults:
    """Return the faults with the times at which routing and bonds react."""
    if settings.routing == Routing.ENTROPY or not len(broken.at):
        return broken
    added = [*_routes(topology, broken, ps_from_us(settings.reroute_delay_us))]
    added += _bonds(broken, ps_from_us(settings.failover_delay_us))
    columns = [(part.tolist()) for part in (broken.at, broken.kind, broken.subject, broken.value)]
    for at, kind, subject in added:
        for column, value in zip(columns, (at, int(kind), subject, 0), strict=True):
            column.append(value)
    return faults(*(np.array(column, np.int64) for column in columns))


def _routes(topology: Topology, broken: Faults, delay: int) -> Iterator[tuple[int, FaultKind, int]]:
    """Yield withdrawals from the routing tables and restorations: both directions of a cable, or its NIC port."""
    for at, cable, dead in _lasting(_cables(topology, broken), delay):
        reverse = int(topology.link_reverse[cable])
        ports = [
            int(topology.link_source[link]) * PORTS_PER_NIC + int(topology.link_port[link])
            for link in (cable, reverse)
            if topology.node_kind[topology.link_source[link]] == NodeKind.NIC
        ]
        for port in ports:
            yield at, FaultKind.PORT_WITHDRAWN if dead else FaultKind.PORT_RESTORED, port
        if not ports:
            for link in (cable, reverse):
                yield at, FaultKind.ROUTE_WITHDRAWN if dead else FaultKind.ROUTE_RESTORED, link


def _cables(topology: Topology, broken: Faults) -> Iterator[Change]:
    """Yield the times at which a cable, named by its lower link, fails or returns."""
    down: set[int] = set()
    silent: set[int] = set()
    dead: set[int] = set()
    for at, kind, link, value in _rows(broken):
        match kind:
            case FaultKind.LINK_DOWN:
                down.add(link)
            case FaultKind.LINK_UP:
                down.discard(link)
            case FaultKind.LINK_LOSS:
                (silent.add if value >= _EVERYTHING else silent.discard)(link)
            case _:
                continue
        reverse = int(topology.link_reverse[link])
        cable = min(link, reverse)
        is_dead = any(each in down or each in silent for each in (link, reverse))
        if is_dead != (cable in dead):
            (dead.add if is_dead else dead.discard)(cable)
            yield at, cable, is_dead


def _bonds(broken: Faults, delay: int) -> Iterator[tuple[int, FaultKind, int]]:
    changes = (
        (at, port, kind == FaultKind.PORT_DOWN)
        for at, kind, port, _ in _rows(broken)
        if kind in (FaultKind.PORT_DOWN, FaultKind.PORT_UP)
    )
    for at, port, gone in _lasting(changes, delay):
        yield at, FaultKind.BOND_LEFT if gone else FaultKind.BOND_JOINED, port


def _rows(broken: Faults) -> Iterator[tuple[int, int, int, int]]:
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
