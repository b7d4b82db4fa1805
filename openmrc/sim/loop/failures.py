"""Connections that ended in error, and the causes; ports that stop each other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.core.rows import column
from openmrc.fabric.model.topology import Topology
from openmrc.sim.network.network_tables import NONE, Network
from openmrc.units import NEVER, PS_PER_US

SHOWN = 10  # failures listed in full


@dataclass(frozen=True)
class ConnectionFailure:
    """A queue pair in ERROR, or a connection that was abandoned."""

    cause: str
    nic: int  # place of the failure
    peer: int  # NIC
    flow: int  # the first message that failed with it; -1: none
    at: int  # ps, when the owner was notified; NEVER: not notified
    progressed_at: int  # ps, the last response of the peer; 0: none
    plane: int  # of the oldest unacknowledged packet; -1: none
    ev: int  # its entropy; -1


def summarize(failures: Sequence[ConnectionFailure], topology: Topology) -> dict[str, Any]:
    """Return the `errors` of a summary: counts by cause, and the first failures in full."""
    causes = Counter(failure.cause for failure in failures)
    first = sorted(failures, key=lambda failure: (failure.at, failure.nic, failure.peer))[:SHOWN]
    return {
        "queue_pairs": len(failures),
        "by_cause": dict(causes.most_common()),
        "first": [_one(failure, topology) for failure in first],
    }


def deadlock(network: Network) -> list[int]:
    """Return a cycle of lossless ports, each paused because packets wait at the next; empty: none.

    A port's link is paused while its receiver holds too many packets that came over it. In a cycle nothing leaves but
    when a PAUSE expires.
    """
    paused = set(np.flatnonzero(column(network.queues, "pausing")).tolist())
    waits: dict[int, list[int]] = {}
    for link in paused:
        packet = network.queues[link].head
        came = set()
        while packet != NONE:
            came.add(network.hops[packet].link)
            packet = network.hops[packet].next
        for over in came & paused:
            waits.setdefault(over, []).append(link)
    return _cycle(waits)


def _cycle(waits: dict[int, list[int]]) -> list[int]:
    """Return the nodes of a cycle, each before the one it waits for."""
    left = {node: {after for after in afters if after in waits} for node, afters in waits.items()}
    while ends := {node for node, afters in left.items() if not afters}:
        left = {node: afters - ends for node, afters in left.items() if node not in ends}
    path = [min(left)] if left else []
    while path and (after := min(left[path[-1]])) not in path:
        path.append(after)
    return path[path.index(after) :] if path else []


def why_stopped(failures: Sequence[ConnectionFailure]) -> str:
    """Return why a job with these failures cannot go on, in a line."""
    if not failures:
        return "a message was neither finished nor failed, and nothing could happen any more"
    first = min(failures, key=lambda each: each.at)
    return f"connection from NIC {first.nic} to NIC {first.peer}: {first.cause}"


def _one(failure: ConnectionFailure, topology: Topology) -> dict[str, Any]:
    return {
        "cause": failure.cause,
        "nic": topology.name(failure.nic),
        "peer": topology.name(failure.peer),
        "flow": failure.flow if failure.flow >= 0 else None,
        "at_us": failure.at / PS_PER_US if failure.at < NEVER else None,
        "last_progress_us": failure.progressed_at / PS_PER_US if failure.progressed_at else None,
        "plane": failure.plane if failure.plane >= 0 else None,
        "ev": f"{failure.ev:#x}" if failure.ev >= 0 else None,
    }


def describe(one: dict[str, Any]) -> str:
    """Return one failure of a summary as a line."""
    where = f", plane {one['plane']}, EV {one['ev']}" if one["plane"] is not None else ""
    flow = f" (flow {one['flow']})" if one["flow"] is not None else ""
    heard = "never" if one["last_progress_us"] is None else f"at {one['last_progress_us']:,.1f} us"
    when = "" if one["at_us"] is None else f" at {one['at_us']:,.1f} us"
    return f"{one['nic']} to {one['peer']}{flow}: {one['cause']}{when}{where}; the peer was last heard {heard}"
