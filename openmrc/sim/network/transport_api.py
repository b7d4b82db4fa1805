"""The calls that every transport implements for the loop, with a variant for each type of state.

A transport's state is a NamedTuple of tables that no other module writes. A transport has no access to clocks, links or
queues: it receives `now` and packets as arguments, and returns a packet when a port is free. `Hop.frame` is the row of
its table `frames` that holds the content of the packet. A call marked `optional` does nothing unless it has a variant.
"""

from typing import Any

from openmrc.core.variants import generic, optional
from openmrc.sim.network.network_tables import Network

State = Any  # a transport's NamedTuple


@generic
def receive(state: State, network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    """Process a packet that arrived; its row is free again afterwards."""


@optional
def prefetch_nic(state: State, nic: int, step: int) -> None:
    """Prefetch what every call needs for a NIC; step 0, then step 1."""


@optional
def prefetch(state: State, nic: int, frame: int, step: int) -> None:
    """Prefetch what `receive` will need for a packet; all packets of a window take step 0, then all step 1."""


@generic
def next_packet(state: State, network: Network, shard: int, now: int, nic: int, free_ports: int, hop: int) -> bool:
    """Fill `hop` with the next packet to send; return whether there is one.

    `free_ports` masks the ports that can take data now; control packets ignore it. Fields to fill:
    destination, plane, entropy, size, service, trimmable, and the frame.
    """
    raise AssertionError("every transport has a variant")


@generic
def next_deadline(state: State, nic: int) -> int:
    """Return when `expire` must be called (ps), or NEVER. It may return an earlier time."""
    raise AssertionError("every transport has a variant")


@optional
def expire(state: State, network: Network, now: int, nic: int) -> None:
    """Serve the timers that are due."""


@generic
def post(state: State, network: Network, now: int, flow: int) -> bool:
    """Start a message; return whether there was room. If not, the loop tries again later."""
    raise AssertionError("every transport has a variant")


@generic
def next_done(state: State, nic: int) -> int:
    """Return the next completion (`completed`), or NONE."""
    raise AssertionError("every transport has a variant")


@optional
def set_port(state: State, now: int, nic: int, port: int, up: bool) -> None:
    """Inform a NIC that one of its ports is up or down."""
