"""The packets of one connection in order of time, whoever captured them, and the register of what must hold of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from openmrc.conform.datagrams import TapDatagram, TapPacket
from openmrc.core.serial import PSN_BITS, distance
from openmrc.wire.codes import Opcode
from openmrc.wire.message import MrcPacket


@dataclass(frozen=True)
class TrailPacket:
    """One packet, and who sent it."""

    number: int
    at: int  # ns
    from_requester: bool
    is_judged: bool  # sent by a device under test, not by the tester
    packet: TapPacket
    psn: int = 0  # of a write: counted from the first of the connection
    is_lost: bool = False  # known not to have gone on to the other end

    @property
    def message(self) -> MrcPacket:
        if self.packet.message is None:
            raise AssertionError("not a packet of MRC")
        return self.packet.message

    @property
    def datagram(self) -> TapDatagram:
        return self.packet.datagram


@dataclass
class Trail:
    """Everything seen of one connection."""

    packets: list[TrailPacket]
    first_psn: int
    mtu: int | None = None  # bytes; None: not known
    window: int | None = None  # PSNs that the responder grants; None: not known
    planes: int | None = None  # that both ends have; None: those that were seen

    def read(self) -> Iterator[TrailPacket]:
        """Yield the packets that could be parsed."""
        return (each for each in self.packets if each.packet.message is not None)

    def of(self, *opcodes: Opcode, judged: bool = False) -> list[TrailPacket]:
        """Return the packets with these opcodes, only those of devices under test if asked."""
        return [each for each in self.read() if each.message.opcode in opcodes and (each.is_judged or not judged)]

    def writes(self, judged: bool = False) -> list[TrailPacket]:
        return [
            each
            for each in self.read()
            if each.message.opcode <= Opcode.WRITE_ONLY_IMM and (each.is_judged or not judged)
        ]

    def relative(self, psn: int) -> int:
        """Return a PSN counted from the first of the connection."""
        return distance(psn, self.first_psn, PSN_BITS)


@dataclass(frozen=True)
class PropertyProblem:
    """A packet that breaks a property."""

    packet: int  # its number
    text: str


class NothingToJudgeError(Exception):
    """No packet that a property is about was seen."""


Judge = Callable[[Trail], Iterator[PropertyProblem]]


@dataclass(frozen=True)
class PacketProperty:
    """Something that must hold of all packets of a connection."""

    clause: str
    judge: Judge
    wants_answers: bool = False  # misses answers that did not come, so both directions must have been seen
    follows_timing: bool = False  # is about choices that a pause of the host changes, such as paths after a timeout

    @property
    def about(self) -> str:
        """What must hold, in a sentence."""
        return (self.judge.__doc__ or "").strip().partition("\n")[0]


def some(packets: list[TrailPacket], what: str) -> list[TrailPacket]:
    """Return the packets; raise NothingToJudgeError if there are none."""
    if not packets:
        raise NothingToJudgeError(f"no {what} was seen")
    return packets
