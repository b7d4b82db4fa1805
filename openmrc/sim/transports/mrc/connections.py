"""The queue pairs for a traffic: one for each pair of NICs and connection, and its counterpart."""

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.sim.workloads.traffic import Traffic


@dataclass(frozen=True)
class Connections:
    """Connections as columns, and the connection of every message (-1: it sends nothing)."""

    source: Ints  # NIC
    destination: Ints  # NIC
    of_message: Ints
    messages: Ints  # by connection
    packets: Ints
    watched: Ints  # messages whose arrival releases others
    single_path: Ints
    second_class: Ints

    @property
    def count(self) -> int:
        return len(self.source)


def connections(traffic: Traffic, mtu: int) -> Connections:
    """Collect the connections of a traffic, by source, then destination."""
    sends = np.flatnonzero(traffic.size > 0)
    columns = (traffic.source, traffic.destination, traffic.connection, traffic.single_path, traffic.second_class)
    keys = np.stack([column[sends] for column in columns])
    unique, inverse = np.unique(keys, axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    of_message = np.full(traffic.messages, -1, dtype=np.int64)
    of_message[sends] = inverse
    count = unique.shape[1]
    packets = -(-traffic.size[sends] // mtu)
    return Connections(
        source=unique[0],
        destination=unique[1],
        of_message=of_message,
        messages=np.bincount(inverse, minlength=count),
        packets=np.bincount(inverse, weights=packets, minlength=count).astype(np.int64),
        watched=np.bincount(inverse, weights=traffic.watched[sends], minlength=count).astype(np.int64),
        single_path=unique[3],
        second_class=unique[4],
    )
