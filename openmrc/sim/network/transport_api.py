"""The doors that every transport opens to the loop; a variant of each for each kind of state.

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
    """Take a packet that arrived; its row is free again afterwards."""


@generic
def next_packet(state: State, network: Network, shard: int, now: int, nic: int, free_ports: int, hop: int) -> int:
    """Fill `hop` with the next packet to send and return 1, or return 0: there is none.

    `free_ports` masks the ports that can take data now; control does not ask. To fill: destination, plane, entropy,
    size, service, trimmable, and the frame.
    """
    raise AssertionError("every transport has a variant")


@generic
def next_deadline(state: State, nic: int) -> int:
    """Return when `expire` wants to be called (ps), or NEVER. It may be early."""
    raise AssertionError("every transport has a variant")


@generic
def expire(state: State, network: Network, now: int, nic: int) -> None:
    """Do what time has made due."""


@generic
def post(state: State, network: Network, now: int, flow: int) -> int:
    """Begin a message; return 1, or 0: it cannot be taken yet, ask again after the next completion."""
    raise AssertionError("every transport has a variant")


@generic
def next_done(state: State, nic: int) -> int:
    """Return 4 x flow + traffic.Side of a completion that has not been taken, or NONE."""
    raise AssertionError("every transport has a variant")


@generic
def set_port(state: State, now: int, nic: int, port: int, up: int) -> None:
    """Tell a NIC that one of its ports works, or does not."""


@generic
def copy(state: State, frame: int, into: int) -> None:
    """Copy what a packet says from one frame into another: a fault doubled it."""
    raise AssertionError("every transport has a variant")
