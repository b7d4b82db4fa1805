"""Judge what a capture alone can show: for those who can hand over a file, but not a device.

A file may hold several connections. The writes to one QPN are one; the answers to it are those between the same
addresses, the other way round, whose numbers fit. The capture should begin with the connection: a retransmission whose
first copy was not captured looks like a packet that says rtx without reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import Struct, structs

from openmrc.conform.catalogue import clauses
from openmrc.conform.datagrams import USUAL_DSCPS, DscpNumbers, TapDatagram, TapPacket, as_seen, translations
from openmrc.conform.judging import PROPERTIES, PSNS_OF_AN_MPR, judge
from openmrc.conform.results import TestVerdict
from openmrc.conform.trail import NothingToJudgeError, PropertyProblem, Trail, TrailPacket
from openmrc.errors import ConfigError, WireError
from openmrc.wire.capture import dissect, find_datagram, is_of_mrc
from openmrc.wire.codes import ENDPOINT_QPN, UDP_PORTS_ACCEPTED, Opcode
from openmrc.wire.message import MrcPacket
from openmrc.wire.pcapng import read_frames


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


class PropertyVerdict(Struct, frozen=True):
    """What a property comes to, as in JSON."""

    property: str
    clause: str
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
                if datagram is None or datagram.udp.destination_port not in ports or not is_of_mrc(datagram):
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
    packet = replace(each.packet, datagram=structs.replace(each.packet.datagram, plane=plane))
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
            yield PropertyVerdict(name, each.clause, TestVerdict.INCONCLUSIVE, str(nothing))
            continue
        verdict = TestVerdict.FAIL if problems else TestVerdict.PASS
        if clause.status == "ours":
            verdict = TestVerdict.INFO
        yield PropertyVerdict(name, each.clause, verdict, "", problems)
