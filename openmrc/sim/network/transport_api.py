"""The calls that every transport implements for the loop, with a variant for each type of state.

A transport's state is a NamedTuple of tables that it owns alone. It never sees a clock, a link or a queue: it is told
`now`, gives a packet when a port is free, and takes what arrives. `Hop.frame` is the row of its own table in which it
keeps what the packet says.
"""

from __future__ import annotations

from typing import Any

from openmrc.core.jit import generic
from openmrc.sim.network.tables import Network

State = Any  # a transport's NamedTuple


@generic
def receive(state: State, network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    """Process a packet that arrived; its row is free again afterwards."""


@generic
def next_packet(state: State, network: Network, shard: int, now: int, nic: int, free_ports: int, hop: int) -> int:
    """Fill `hop` with the next packet to send and return 1, or return 0: there is none.

    `free_ports` masks the ports that can take data now; control does not ask. To fill: destination, plane, entropy,
    size, service, trimmable, and the frame.
    """
    raise AssertionError("every transport has a variant")


@generic
def next_deadline(state: State, nic: int) -> int:
    """Return when `expire` must be called (ps), or NEVER. It may be early."""
    raise AssertionError("every transport has a variant")


@generic
def expire(state: State, network: Network, now: int, nic: int) -> None:
    """Serve the timers that are due."""


@generic
def post(state: State, network: Network, now: int, flow: int) -> int:
    """Start a message; return 1, or 0 if that is not possible yet: retry after the next completion."""
    raise AssertionError("every transport has a variant")


@generic
def next_done(state: State, nic: int) -> int:
    """Return 4 x flow + traffic.Side of the next completion, or NONE."""
    raise AssertionError("every transport has a variant")


@generic
def set_port(state: State, now: int, nic: int, port: int, up: int) -> None:
    """Inform a NIC that one of its ports is up or down."""


@generic
def copy(state: State, frame: int, into: int) -> None:
    """Copy the content of a frame into another, for a duplicated packet."""
    raise AssertionError("every transport has a variant")
