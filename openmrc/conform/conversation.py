"""What the tester knows while a test runs: who talks to whom, every packet so far, and the variables of the script."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from openmrc.conform.datagrams import TapDatagram, TapLink, TapPacket, read
from openmrc.conform.devices.contract import Description, DeviceEvent, DeviceUnderTest, Wanted
from openmrc.conform.media.frames import read_frame
from openmrc.conform.media.medium import Medium, TapArrival
from openmrc.core.serial import PSN_BITS, distance
from openmrc.wire.codes import Opcode
from openmrc.wire.entropy import SRV6_PORT_BASE, on_plane
from openmrc.wire.message import MrcPacket


@dataclass
class TapEntry:
    """One packet that the tester sent, received or passed on, or one event of a device.

    It is parsed when somebody asks what it says: a packet that is only passed on need not wait for that.
    """

    number: int  # from 1, as in the capture
    at: int  # ns
    from_device: bool
    side: int
    datagram: TapDatagram | None = None
    link: TapLink | None = None  # between the receiver (here) and the sender (there)
    event: DeviceEvent | None = None
    action: str = ""  # what the relay did with it
    used_by: int = 0  # line of the expectation that took it

    @cached_property
    def packet(self) -> TapPacket | None:
        if self.datagram is None or self.link is None:
            return None
        if self.datagram.frame:
            return read_frame(self.datagram)
        return read(self.datagram, self.link)

    @property
    def message(self) -> MrcPacket | None:
        """Return the packet's headers, if it is one."""
        return self.packet.message if self.packet is not None else None


@dataclass
class ConversationEnds:
    """The two ends of the connection under test."""

    requester: Description
    responder: Description


@dataclass
class TestConversation:
    """A test that is running."""

    __test__ = False  # not a test of pytest

    medium: Medium
    devices: Sequence[DeviceUnderTest]
    wanted: Wanted
    ends: ConversationEnds
    described: Sequence[Description]  # of the device on each side
    tester: Sequence[Description]  # as which the tester answers on each side
    entries: list[TapEntry] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)
    begun_at: int = 0  # ns: the medium's standstill when the test began
    life: int = 0  # entries before the device's queue pair last went through RESET

    @property
    def standstill(self) -> int:
        """For how long (ns) this host has kept tester and devices from running during the test."""
        return self.medium.standstill() - self.begun_at

    def link(self, side: int, plane: int) -> TapLink:
        return self.medium.links(side)[plane]

    def pair_of(self, message: MrcPacket) -> int | None:
        """Return the queue pair of the tester that a packet is for, from 0."""
        numbers = [end.qpn for end in self.tester[0].pairs()]
        return numbers.index(message.bth.dqp) if message.bth.dqp in numbers else None

    def add(self, entry: TapEntry) -> TapEntry:
        entry.number = len(self.entries) + 1
        self.entries.append(entry)
        return entry

    def pump(self, until: int, take: Callable[[TapEntry], None] | None = None) -> None:
        """Record what arrives until a time (ns) or until something does; `take` sees each packet at once.

        Whoever takes packets to pass them on is in a hurry.
        """
        for arrival in self.medium.wait(until, polls=take is not None):
            entry = self._record(arrival)
            if take is not None:
                take(entry)
        for side, device in enumerate(self.devices):
            for event in device.events():
                self.add(TapEntry(0, self.medium.now(), True, side, event=event))

    def _record(self, arrival: TapArrival) -> TapEntry:
        datagram = arrival.datagram
        link = self.medium.links(datagram.side)[datagram.plane]
        return self.add(TapEntry(0, arrival.at, True, datagram.side, datagram, link))

    def relative(self, psn: int) -> int:
        """Return a PSN counted from the requester's first, below zero for older ones."""
        return distance(psn, self.ends.requester.psn, PSN_BITS)

    def absolute(self, psn: int) -> int:
        """Return the 24 bits of a PSN that is counted from the requester's first."""
        return (psn + self.ends.requester.psn) % (1 << PSN_BITS)

    def device_writes(self, pair: int = 0) -> Iterator[MrcPacket]:
        """Yield the writes that came from a device for a queue pair of the tester."""
        for entry in self.entries[self.life :]:
            if (message := self._write_of(entry, pair)) is not None:
                yield message

    def latest_write(self, psn: int, pair: int = 0) -> TapEntry | None:
        """Return the last write with this PSN (counted) that came from a device for a queue pair."""
        for entry in reversed(self.entries[self.life :]):
            message = self._write_of(entry, pair)
            if message is not None and self.relative(message.bth.psn) == psn:
                return entry
        return None

    def _write_of(self, entry: TapEntry, pair: int) -> MrcPacket | None:
        message = entry.message
        if message is None or not entry.from_device or message.opcode > Opcode.WRITE_ONLY_IMM:
            return None
        return message if self.pair_of(message) == pair else None

    def received_bytes(self, pair: int = 0) -> int:
        """Return the nominal bytes of the writes that came from a device, each PSN once (MRC §8.3.1)."""
        sizes = {each.bth.psn: len(each.payload) + NOMINAL_OVERHEAD for each in self.device_writes(pair)}
        return sum(sizes.values())


NOMINAL_OVERHEAD = 88  # UDP to ICRC of a write with timestamp, and the 40 bytes of MRC §8.3.1


def tester_port(plane: int, k: int) -> int:
    """Return the source port of the tester's k-th path on a plane."""
    return SRV6_PORT_BASE | on_plane(plane, TESTER_PATHS + k)


# First path number of the tester, above those of devices on the same host: it is the last of 64 processes with 8 paths
# (decision 22), from whose source ports libmrc takes packets.
TESTER_PATHS = 504
