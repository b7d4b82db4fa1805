"""What became of every packet that a node gave to a port: sent = arrived + waiting + losses by cause.

A packet can end in four places, and each place counts for itself:

    node --> program (full, control full, faults) --> queue (late, flushed) --> cable (refused) --> node

The program's counters are in its BPF map, the queue's drops in the qdiscs below its two classes, and both ends of the
cable in the devices' statistics. The kernel counts no packet that it flushes when it deactivates a port, so `flushed`
is the only cause that is inferred: it is what a pulled port cannot account for otherwise.
"""

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from openmrc.lab.commands import CONTROL_LEAF, DATA_LEAF
from openmrc.lab.namespaces import inside
from openmrc.lab.port import PortCounters

_RX_PACKETS, _TX_DROPPED = 1, 11  # columns of /proc/net/dev after the name
_DEVICES = Path("/proc/thread-self/net/dev")


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Packets of one directed link that did not arrive, by cause."""

    full: int = 0  # the queue was full, and they must not be trimmed
    control_full: int = 0  # control and trimmed packets alone were more than the port carries
    late: int = 0  # this machine emptied the queue more slowly than the port's rate, until it overflowed
    flushed: int = 0  # in the queue when the port went down
    refused: int = 0  # by the other end: its port is down, or its processor's backlog is full
    faults: int = 0  # injected

    @property
    def total(self) -> int:
        return sum(self.named().values())

    def named(self) -> dict[str, int]:
        """Return the causes that took packets."""
        return {cause: count for cause in self.__struct_fields__ if (count := getattr(self, cause))}


@dataclass(frozen=True)
class QueueCounters:
    """Packets of a port's two classes."""

    dropped: int
    waiting: int


@dataclass(frozen=True)
class DeviceCounters:
    received: int
    refused: int  # by its peer


@dataclass(frozen=True)
class LinkAccount:
    sent: int
    arrived: int
    waiting: int
    losses: Losses

    @property
    def unaccounted(self) -> int:
        """Return the packets without a named end: 0, except while traffic moves between two readings."""
        return self.sent - self.arrived - self.waiting - self.losses.total


def account(
    port: PortCounters, queue: QueueCounters, here: DeviceCounters, there: DeviceCounters, was_down: bool
) -> LinkAccount:
    """Account for one directed link; a rest is flushed if its port was down at some time."""
    known = Losses(
        full=port.dropped, control_full=port.control_dropped, faults=port.lost, late=queue.dropped, refused=here.refused
    )
    found = LinkAccount(port.offered, there.received, queue.waiting, known)
    if not was_down or found.unaccounted <= 0:
        return found
    return replace(found, losses=msgspec.structs.replace(known, flushed=found.unaccounted))


def read_devices(namespace: str) -> dict[str, DeviceCounters]:
    with inside(namespace):
        lines = _DEVICES.read_text("ascii").splitlines()
    found = {}
    for line in lines[2:]:
        name, columns = line.split(":")
        numbers = [int(word) for word in columns.split()]
        found[name.strip()] = DeviceCounters(numbers[_RX_PACKETS], numbers[_TX_DROPPED])
    return found


def read_queues(namespace: str) -> dict[str, QueueCounters]:
    """Return the counters of a namespace's queues by interface, both classes together."""
    command = ["tc", "-netns", namespace, "-statistics", "-json", "qdisc", "show"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, QueueCounters] = {}
    for qdisc in json.loads(shown):
        if qdisc["handle"] in (CONTROL_LEAF, DATA_LEAF):
            so_far = found.get(qdisc["dev"], QueueCounters(0, 0))
            found[qdisc["dev"]] = QueueCounters(so_far.dropped + qdisc["drops"], so_far.waiting + qdisc["qlen"])
    return found
