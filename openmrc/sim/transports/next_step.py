"""What each transport carries from one step to the next, and the state that two steps are compared by.

MRC's connections live as long as the job. Messages of UET and RoCE are connections of their own: a step begins with
fresh ones, as in a run of many steps, and with nothing but the network's state from the one before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.core.rows import column
from openmrc.errors import ConfigError
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import UNACKNOWLEDGED, LoopTransport
from openmrc.sim.network.network_tables import Network
from openmrc.sim.transports.mrc.next_step import next_step
from openmrc.sim.transports.mrc.transport import Mrc
from openmrc.sim.workloads.traffic import Traffic

State = Any
NextStep = Callable[[State, Network, int, int], State]  # state, network, now (ps), time left out before it (ps)


@dataclass(frozen=True)
class TransportState:
    """What a transport carries into a step, in totals."""

    window: float = 0.0  # bytes, mean over peers; 0: it begins anew
    paths_out: float = 0.0  # share of the EVs that are out of use
    ports_down: int = 0  # ports that NICs and peers do not use, counted at each


def next_step_of(transport: LoopTransport, topology: Topology, traffic: Traffic, state: State, seed: int) -> NextStep:
    """Return what prepares the state of a transport, not used yet, for steps after the first."""
    if transport.name == UNACKNOWLEDGED:
        raise ConfigError("steps of datagrams are never known to be over; use mrc, uet or roce")
    if isinstance(state, Mrc):
        return next_step(state)

    def built_anew(before: State, network: Network, now: int, skipped: int) -> State:
        """Return fresh connections on the same paths: those follow from the seed; what NICs draw goes on."""
        column(before.nics, "heap_count")[:] = 0  # of timers: the new senders have as many rows
        return transport.build(topology, traffic, network, seed)._replace(frames=before.frames, nics=before.nics)

    return built_anew


def state_of(state: State) -> TransportState:
    """Return what a step that begins now finds."""
    if not isinstance(state, Mrc):
        return TransportState()
    engine = state.engine
    evs, good = column(engine.qps, "ev_count"), column(engine.qps, "good_evs")
    return TransportState(
        window=float(column(engine.peers, "cwnd").mean()),
        paths_out=float(evs.sum() - good.sum()) / max(1, int(evs.sum())),
        ports_down=_down(engine),
    )


def _down(engine: Any) -> int:
    """Count the ports that are not in use, at each NIC, at each NIC of each peer, and silent ones of queue pairs."""
    ports = column(engine.endpoints, "port_count")
    here, there = column(engine.endpoints, "ports_up"), column(engine.peers, "ports_up")
    own = int(ports.sum()) - _bits(here)
    of_peers = int(ports[column(engine.peers, "endpoint")].sum()) - _bits(there)
    return own + of_peers + _bits(column(engine.qps, "silent_ports"))


def _bits(masks: Any) -> int:
    return int(np.bitwise_count(masks).sum())
