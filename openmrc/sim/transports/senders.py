"""Senders of a NIC, as UET and RoCE have them: one timer each, and rings of those with packets to send.

A transport's NIC row begins with `SenderNic`, its state has the tables of `SenderState`. The timers of a NIC's senders
are a heap: a NIC with 100,000 messages in progress takes little more time per packet than one with ten. A NIC has a
ring for the senders of each port, so that those of a busy or paused port cost no time; a sender is in one at most.
"""

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from openmrc.core import heap, ring, rng
from openmrc.core.jit import kernel
from openmrc.core.rows import Bool, Int, Int32, Table, column, table
from openmrc.sim.loop.failures import ConnectionFailure
from openmrc.sim.network.completed import UnreportedFlows
from openmrc.sim.network.network_tables import NONE, Network

Nic = TypeVar("Nic")


class SenderNic(UnreportedFlows):
    heap_base: Int32  # in `SenderState.timers`
    heap_count: Int32
    random: Int


class SenderTimer:
    """An entry of the heaps, and the place of a sender in them (`core.heap`)."""

    at: Int  # ps
    item: Int32  # sender
    slot: Int32


class SenderRing:
    """A ring (`core.ring`)."""

    ready_tail: Int32
    ready_count: Int32


class SenderLink:
    """A sender's place in its ring."""

    next_ready: Int32
    listed: Bool


class SenderState(Protocol):
    """The tables of a transport's state that these kernels use."""

    @property
    def nics(self) -> Table[Any]: ...
    @property
    def timers(self) -> Table[SenderTimer]: ...
    @property
    def rings(self) -> Table[SenderRing]: ...
    @property
    def links(self) -> Table[SenderLink]: ...
    @property
    def senders(self) -> Table[Any]: ...


def idle_nics(row: type[Nic], nics: int, nic_of_sender: NDArray[np.int64], seed: int) -> Table[Nic]:
    """Return NICs with nothing to report, a heap for their senders, and random numbers of their own."""
    made = table(row, nics)
    for name in ("sent", "received", "failed"):
        column(made, name)[:] = NONE
    here = np.bincount(nic_of_sender, minlength=nics)
    column(made, "heap_base")[:] = np.cumsum(here) - here
    column(made, "random")[:] = rng.seeded(seed, np.arange(nics))
    return made


def idle_senders(count: int, rings: int) -> tuple[Table[SenderTimer], Table[SenderRing], Table[SenderLink]]:
    """Return the timers of senders, none armed, empty rings, and the senders' places in them."""
    timers, empty = table(SenderTimer, count), table(SenderRing, rings)
    column(timers, "slot")[:] = heap.NONE
    column(empty, "ready_tail")[:] = ring.NONE
    return timers, empty, table(SenderLink, count)


def failures(state: SenderState, network: Network) -> list[ConnectionFailure]:
    """Return the connections of the senders in error."""
    return [_failure(network, state.senders[int(row)]) for row in np.flatnonzero(column(state.senders, "error"))]


def _failure(network: Network, sender: Any) -> ConnectionFailure:
    flow = network.flows[sender.flow]
    return ConnectionFailure(
        cause="retries spent",
        nic=flow.source,
        peer=flow.destination,
        flow=sender.flow,
        at=flow.failed_at,
        progressed_at=sender.progressed_at,
        plane=sender.plane,
        ev=sender.entropy,
    )


@kernel
def next_deadline(state: SenderState, nic: int) -> int:
    """Return the earliest time (ps) of a NIC's senders, NEVER if none waits; of the call in `transport_api`."""
    return heap.first_at(state.nics[nic], state.timers)


@kernel
def arm(state: SenderState, nic: int, sender: int, at: int) -> None:
    """Set the timer of a sender (ps), replacing any earlier setting; NEVER: none."""
    heap.arm(state.nics[nic], state.timers, sender, at)


@kernel
def take_due(state: SenderState, nic: int, now: int) -> int:
    """Take the timer of the first sender that is due, and return the sender, or NONE."""
    if heap.first_at(state.nics[nic], state.timers) > now:
        return NONE
    return heap.take_first(state.nics[nic], state.timers)


@kernel
def append(state: SenderState, number: int, sender: int) -> None:
    """Append a sender to a ring, unless it is in one."""
    if not state.links[sender].listed:
        ring.append(state.rings[number], state.links, sender)
