"""Judge what a capture alone can show, or compare two: for those who can hand over a file, but not a device.

A file may hold several connections. The writes to one QPN are one; the answers to it are those between the same
addresses, the other way round, whose numbers fit. The capture should begin with the connection: a retransmission whose
first copy was not captured looks like a packet that says rtx without reason.

Two captures of the same exchange are aligned by direction, opcode and PSN. Numbers that each connection chooses for
itself - QPNs, PSNs, addresses, keys, timestamps - are compared as distances from the first of their capture, or not at
all.
"""

import difflib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from openmrc.conform.catalogue import clauses
from openmrc.conform.datagrams import USUAL_DSCPS, DscpNumbers, TapDatagram, TapPacket, as_seen, translations
from openmrc.conform.judging import PROPERTIES, PSNS_OF_AN_MPR, judge
from openmrc.conform.results import TestVerdict
from openmrc.conform.trail import RING, NothingToJudgeError, PropertyProblem, Trail, TrailPacket
from openmrc.errors import ConfigError, WireError
from openmrc.wire.capture import dissect, find_datagram, is_mrc_port, is_of_mrc
from openmrc.wire.codes import ENDPOINT_QPN, UDP_PORTS_ACCEPTED, Opcode
from openmrc.wire.message import MrcPacket
from openmrc.wire.pcapng import read_frames

_CHOSEN = frozenset(("dqp", "r_key", "tx_timestamp", "spdcid", "dpdcid", "entropy", "probe_id", "vendor_info"))
_RELATIVE = frozenset(("psn", "cack_psn", "nack_psn"))
CLAUSES: dict[str, str] = tomllib.loads(Path(__file__).with_name("fields.toml").read_text("utf-8"))


@dataclass(frozen=True)
class CapturedPacket:
    number: int
    at: int  # ns
    ends: tuple[str, str]  # source and destination address
    packet: TapPacket

    @property
    def message(self) -> MrcPacket | None:
        """Return the headers, if they could be read."""
        return self.packet.message


@dataclass(frozen=True)
class PropertyVerdict:
    name: str
    clause: str
    about: str
    verdict: TestVerdict
    note: str = ""
    problems: tuple[PropertyProblem, ...] = ()


def read_capture(
    path: Path, ports: Sequence[int] = UDP_PORTS_ACCEPTED, dscps: DscpNumbers = USUAL_DSCPS
) -> list[CapturedPacket]:
    """Return the packets of MRC to these UDP ports in a capture file, with the usual DSCPs for the deployment's.

    What cannot be parsed is kept with its problem.
    Datagrams to its port with other opcodes are of RoCEv2 or of others, and nobody's mistake.
    """
    found, usual = [], translations(dscps)[1]
    try:
        with path.open("rb") as file:
            for frame in read_frames(file):
                try:
                    datagram = find_datagram(frame)
                except WireError:
                    continue  # not IP
                if datagram is None or not (is_mrc_port(datagram, tuple(ports)) and is_of_mrc(datagram)):
                    continue
                ends = str(datagram.ip.source), str(datagram.ip.destination)
                dscp, port = usual[datagram.ip.dscp], datagram.udp.source_port
                tap = TapDatagram(0, 0, port, datagram.payload, dscp, datagram.ip.ecn)
                try:
                    seen = dissect(frame, datagram, (dscps.trimmed, dscps.lasthop))
                    packet = as_seen(tap, seen.message, seen.icrc_ok)
                except WireError as error:
                    packet = TapPacket(tap, None, str(error))
                found.append(CapturedPacket(frame.number, frame.time_ns, ends, packet))
    except (OSError, WireError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return found


def trails(packets: Sequence[CapturedPacket], mpr: int | None = None) -> Iterator[tuple[str, Trail]]:
    """Yield the connections of a capture, each with its name; `mpr` is the responder's window if known (128 PSNs)."""
    by_qpn: dict[int, list[CapturedPacket]] = {}
    for each in packets:
        if each.message is not None and each.message.opcode <= Opcode.WRITE_ONLY_IMM:
            by_qpn.setdefault(each.message.bth.dqp, []).append(each)
    for qpn, writes in by_qpn.items():
        yield f"writes to QPN {qpn:#x}", _trail(packets, writes, qpn, mpr)


def _trail(packets: Sequence[CapturedPacket], writes: list[CapturedPacket], qpn: int, mpr: int | None) -> Trail:
    ways = {each.ends for each in writes}
    backwards = {(there, here) for here, there in ways}
    first = writes[0].message
    trail = Trail([], first.bth.psn if first is not None else 0, None, mpr * PSNS_OF_AN_MPR if mpr else None)
    answers = _answering_qpn(packets, backwards, trail, writes)
    planes = {ends: number for number, ends in enumerate(sorted(ways))}
    for each in packets:
        message = each.message
        if message is None:
            belongs = each.ends in ways or each.ends in backwards
        else:
            wanted = (qpn, ENDPOINT_QPN) if each.ends in ways else (answers, ENDPOINT_QPN)
            belongs = (each.ends in ways or each.ends in backwards) and message.bth.dqp in wanted
        if belongs:
            trail.packets.append(_packet(trail, each, each.ends in ways, planes))
    return trail


def _packet(trail: Trail, each: CapturedPacket, onward: bool, planes: dict[tuple[str, str], int]) -> TrailPacket:
    message = each.message
    is_write = message is not None and message.opcode <= Opcode.WRITE_ONLY_IMM
    psn = trail.relative(message.bth.psn) if message is not None and is_write else 0
    plane = planes.get(each.ends if onward else (each.ends[1], each.ends[0]), 0)
    old = each.packet.datagram
    datagram = TapDatagram(0, plane, old.source_port, old.body, old.dscp, old.ecn)
    packet = TapPacket(datagram, message, each.packet.problem, each.packet.icrc_ok)
    return TrailPacket(each.number, each.at, onward, True, packet, psn, packet.icrc_ok is False)


def _answering_qpn(
    packets: Sequence[CapturedPacket], backwards: set[tuple[str, str]], trail: Trail, writes: list[CapturedPacket]
) -> int | None:
    """Return the QPN of the requester: of those that are answered the other way, the one whose SACKs fit best."""
    psns = {each.message.bth.psn for each in writes if each.message is not None}
    fits: dict[int, int] = {}
    for each in packets:
        message = each.message
        if message is not None and each.ends in backwards and message.opcode in (Opcode.SACK, Opcode.ACKNOWLEDGE):
            psn = message.seth.cack_psn if message.opcode == Opcode.SACK else message.bth.psn
            fits[message.bth.dqp] = fits.get(message.bth.dqp, 0) + (psn in psns)
    return max(fits, key=lambda qpn: fits[qpn]) if fits else None


def judge_trail(trail: Trail) -> Iterator[PropertyVerdict]:
    """Yield what each property of packets comes to."""
    for name, each in PROPERTIES.items():
        clause = clauses()[each.clause]
        try:
            if each.wants_answers and all(packet.from_requester for packet in trail.packets):
                raise NothingToJudgeError("no packet of the responder was captured")
            problems = tuple(judge(name, trail))
        except NothingToJudgeError as nothing:
            yield PropertyVerdict(name, each.clause, each.about, TestVerdict.INCONCLUSIVE, str(nothing))
            continue
        verdict = TestVerdict.FAIL if problems else TestVerdict.PASS
        if clause.status == "ours":
            verdict = TestVerdict.INFO
        yield PropertyVerdict(name, each.clause, each.about, verdict, "", problems)


# Two captures


@dataclass(frozen=True)
class PacketDifference:
    """What differs between a packet and its counterpart."""

    ours: int | None  # frame in the first capture; None: it has no such packet
    theirs: int | None
    name: str
    fields: tuple[tuple[str, int, int], ...] = ()  # field, in the first, in the second


def differences(ours: Sequence[CapturedPacket], theirs: Sequence[CapturedPacket]) -> Iterator[PacketDifference]:
    """Yield the packets that differ or have no counterpart."""
    first, second = _Side(ours), _Side(theirs)
    matcher = difflib.SequenceMatcher(None, first.keys, second.keys, autojunk=False)
    for kind, begin, end, other, other_end in matcher.get_opcodes():
        if kind == "equal":
            for offset in range(end - begin):
                yield from _compared(first, begin + offset, second, other + offset)
            continue
        for index in range(begin, end):
            yield PacketDifference(first.packets[index].number, None, first.keys[index][1])
        for index in range(other, other_end):
            yield PacketDifference(None, second.packets[index].number, second.keys[index][1])


class _Side:
    """The packets of one capture that could be read, with what they are aligned by."""

    def __init__(self, packets: Sequence[CapturedPacket]) -> None:
        self.packets = [each for each in packets if each.message is not None]
        writes = [message for _, message in self.messages() if message.opcode <= Opcode.WRITE_ONLY_IMM]
        self.first_psn = writes[0].bth.psn if writes else 0
        self.first_va = writes[0].reth.va if writes else 0
        self.keys = [(message.opcode <= Opcode.WRITE_ONLY_IMM, message.opcode.name, self._number(message))
                     for _, message in self.messages()]  # fmt: skip

    def messages(self) -> Iterator[tuple[CapturedPacket, MrcPacket]]:
        return ((each, each.message) for each in self.packets if each.message is not None)

    def value(self, name: str, value: int) -> int:
        """Return a field as it is compared."""
        if name in _RELATIVE:
            return (value - self.first_psn) % RING
        return value - self.first_va if name == "va" else value

    def _number(self, message: MrcPacket) -> int:
        return (message.bth.psn - self.first_psn) % RING if message.opcode <= Opcode.WRITE_ONLY_IMM else 0


def _compared(first: _Side, one: int, second: _Side, other: int) -> Iterator[PacketDifference]:
    ours, theirs = first.packets[one].message, second.packets[other].message
    if ours is None or theirs is None:
        return
    found = [("payload", len(ours.payload), len(theirs.payload))] if ours.payload != theirs.payload else []
    for mine, yours in zip(ours.parts, theirs.parts, strict=False):
        for name, value in mine.values.items():
            if name not in _CHOSEN and name in yours.values and not _is_of_control(ours, name):
                here, there = first.value(name, value), second.value(name, yours.values[name])
                if here != there:
                    found.append((f"{mine.header.name}.{name}", here, there))
    if found:
        numbers = first.packets[one].number, second.packets[other].number
        yield PacketDifference(*numbers, ours.opcode.name, tuple(found))


def _is_of_control(message: MrcPacket, name: str) -> bool:
    """Whether a field is the PSN of a packet that has none."""
    return name == "psn" and message.opcode not in (Opcode.ACKNOWLEDGE,) and message.opcode > Opcode.WRITE_ONLY_IMM


def clause_of(field: str) -> str:
    """Return the clause that a field is about."""
    return CLAUSES.get(field.rpartition(".")[2], "wire-layout")
