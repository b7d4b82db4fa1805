"""Properties of what a responder sends: SACKs that say what arrived, answers to marks, probes, trims and requests."""

from collections import Counter
from collections.abc import Iterator

from openmrc.conform.matching import reported
from openmrc.conform.trail import PropertyProblem, Trail, TrailPacket, some
from openmrc.core.serial import RCVD_BYTES_BITS, distance
from openmrc.wire.codes import CONGESTED, NackReason, Opcode, Syndrome

_COUNT_BITS = 24  # of completed messages
_ANSWERS = (Opcode.SACK, Opcode.NACK, Opcode.ACKNOWLEDGE, Opcode.ENDPOINT_RESPONSE)


def sack_truth(trail: Trail) -> Iterator[PropertyProblem]:
    """A SACK reports no PSN that was not sent: up to cack_psn all, beyond it those of the bitmap."""
    some(trail.of(Opcode.SACK, judged=True), "SACK")
    sent: set[int] = set()
    for each in trail.read():
        if each.message.opcode <= Opcode.WRITE_ONLY_IMM:
            sent.add(each.psn)
        elif each.message.opcode == Opcode.SACK and each.is_judged:
            cack = trail.relative(each.message.seth.cack_psn)
            for psn in sorted(cack + offset for offset in reported(each.message)):
                if psn not in sent:
                    yield PropertyProblem(each.number, f"PSN {psn} is reported, but was not sent")
            if cack >= 0 and cack not in sent:
                yield PropertyProblem(each.number, f"cack_psn {cack} was not sent")


def sack_base(trail: Trail) -> Iterator[PropertyProblem]:
    """The bitmap starts behind cack_psn."""
    for each in some(trail.of(Opcode.SACK, judged=True), "SACK"):
        if each.message.seth.sack_bitmap and each.message.seth.sack_offset < 1:
            yield PropertyProblem(each.number, f"sack_offset is {each.message.seth.sack_offset}")


def reflected(trail: Trail) -> Iterator[PropertyProblem]:
    """SACKs and NACKs reflect EV and timestamp of a packet that arrived before."""
    some(trail.of(Opcode.SACK, Opcode.NACK, judged=True), "SACK or NACK")
    seen: set[tuple[int, int]] = set()
    for each in trail.read():
        message = each.message
        if message.opcode <= Opcode.WRITE_ONLY_IMM:
            seen.add((each.datagram.source_port, message.tseth.tx_timestamp if message.bth.ts else 0))
        elif message.opcode == Opcode.PROBE:
            seen.add((each.datagram.source_port, message.peth.tx_timestamp))
        elif each.is_judged and message.opcode in (Opcode.SACK, Opcode.NACK):
            yield from _reflection(each, seen)


def _reflection(each: TrailPacket, seen: set[tuple[int, int]]) -> Iterator[PropertyProblem]:
    message = each.message
    if message.opcode == Opcode.SACK:
        if message.seth.cc_type != 0:
            return
        entropy, timestamp = message.seth.entropy, message.cc_state.tx_timestamp
    else:
        entropy, timestamp = message.neth.entropy, message.neth.tx_timestamp
    if (entropy & 0xFFFF, timestamp) not in seen:
        yield PropertyProblem(each.number, f"no packet with EV {entropy:#x} and timestamp {timestamp} was seen")


def marks_answered(trail: Trail) -> Iterator[PropertyProblem]:
    """Every write that arrived with a congestion mark is answered by a SACK that marks its EV, and no other EV."""
    marked = [each for each in trail.writes() if each.datagram.ecn == CONGESTED and not each.is_lost]
    some(marked, "marked write")
    sacks = trail.of(Opcode.SACK, judged=True)
    for each in marked:
        named = (sack for sack in sacks if sack.at >= each.at and sack.message.seth.m)
        if not any(sack.message.seth.entropy & 0xFFFF == each.datagram.source_port for sack in named):
            yield PropertyProblem(each.number, f"no SACK marks EV {each.datagram.source_port:#x}")
    ports = {each.datagram.source_port for each in marked}
    for sack in sacks:
        if sack.message.seth.m and sack.message.seth.entropy & 0xFFFF not in ports:
            yield PropertyProblem(sack.number, f"EV {sack.message.seth.entropy:#x} is marked, but its packet was not")


def probes_answered(trail: Trail) -> Iterator[PropertyProblem]:
    """Every reliability probe that arrived is answered by a SACK with pr = 1 and its probe_id."""
    probes = [each for each in trail.of(Opcode.PROBE) if not each.is_lost]
    answers = [each for each in trail.of(Opcode.SACK, judged=True) if each.message.seth.pr]
    for each in some(probes, "reliability probe"):
        wanted = each.message.peth.probe_id
        if not any(answer.at >= each.at and answer.message.seth.ack_psn_offset == wanted for answer in answers):
            yield PropertyProblem(each.number, f"probe {wanted} is not answered")


def trims_answered(trail: Trail) -> Iterator[PropertyProblem]:
    """Every trimmed write whose data had not arrived is answered by a NACK."""
    trimmed = some([each for each in trail.writes() if each.datagram.is_trimmed and not each.is_lost], "trimmed write")
    whole = {each.psn: each.at for each in reversed(trail.writes()) if not each.datagram.is_trimmed}
    reasons = (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)
    nacks = [each for each in trail.of(Opcode.NACK, judged=True) if each.message.neth.nack_reason in reasons]
    for each in trimmed:
        had = each.psn in whole and whole[each.psn] < each.at
        if not had and not any(trail.relative(nack.message.neth.nack_psn) == each.psn for nack in nacks):
            yield PropertyProblem(each.number, f"PSN {each.psn} arrived trimmed and is not refused")


def one_answer(trail: Trail) -> Iterator[PropertyProblem]:
    """No packet draws the same answer twice, but for a SACK that is said again on a return path just found."""
    some(trail.of(*_ANSWERS, judged=True), "answer")
    arrived: Counter[object] = Counter()  # what draws answers, by what they name
    answers: Counter[bytes] = Counter()
    for each in trail.read():
        message, said = each.message, each.message.emit()
        if message.opcode not in _ANSWERS and not each.is_lost:
            arrived.update(["any", "probe" if message.opcode == Opcode.PROBE else _named(trail, each)])
        elif message.opcode in _ANSWERS and each.is_judged:
            answers[said] += 1
            drew = arrived[_named(trail, each)]
            drew += arrived["probe"] + 1 if message.opcode == Opcode.SACK else 0
            if answers[said] > drew:
                yield PropertyProblem(each.number, f"{each.packet.name} comes {answers[said]} times, drawn by {drew}")


def _named(trail: Trail, each: TrailPacket) -> object:
    """Return what a packet and its answers have in common: the number of a request or a write."""
    message = each.message
    match message.opcode:
        case Opcode.ACKNOWLEDGE:
            return "any"
        case Opcode.ENDPOINT_REQUEST | Opcode.ENDPOINT_RESPONSE:
            return "request", message.bth.psn & 0xFFFF
        case Opcode.SACK:
            return trail.relative(message.seth.cack_psn) + message.seth.ack_psn_offset
        case Opcode.NACK:
            return trail.relative(message.neth.nack_psn)
        case _:
            return each.psn


def acknowledgements(trail: Trail) -> Iterator[PropertyProblem]:
    """Transport acknowledgements have no credits (0x1F), or are NAKs; the count of messages never falls."""
    count: int | None = None
    naks = (Syndrome.INVALID_REQUEST, Syndrome.REMOTE_ACCESS_ERROR, Syndrome.REMOTE_OPERATIONAL_ERROR)
    for each in some(trail.of(Opcode.ACKNOWLEDGE, judged=True), "acknowledgement"):
        syndrome = each.message.aeth.syndrome
        if syndrome != Syndrome.ACK and syndrome not in naks:
            yield PropertyProblem(each.number, f"syndrome {syndrome:#x}")
        found = each.message.aeth.msn
        if count is not None and distance(found, count, _COUNT_BITS) < 0:
            yield PropertyProblem(each.number, f"{found} messages after {count}")
        count = found


def received_bytes(trail: Trail) -> Iterator[PropertyProblem]:
    """rcvd_bytes never falls, on its ring of 24 bits."""
    before: int | None = None
    for each in some([one for one in trail.of(Opcode.SACK, judged=True) if not one.message.seth.cc_type], "SACK"):
        found = each.message.cc_state.rcvd_bytes
        if before is not None and distance(found, before, RCVD_BYTES_BITS) < 0:
            yield PropertyProblem(each.number, f"rcvd_bytes {found} after {before}")
        before = found


def control_class(trail: Trail) -> Iterator[PropertyProblem]:
    """Answers travel in one class, which is not that of data."""
    answers = some(trail.of(*_ANSWERS, judged=True), "answer")
    data = {each.datagram.dscp for each in trail.writes()}
    for each in answers:
        if each.datagram.dscp != answers[0].datagram.dscp:
            text = f"{each.packet.name} has DSCP {each.datagram.dscp}, others {answers[0].datagram.dscp}"
            yield PropertyProblem(each.number, text)
        elif each.datagram.dscp in data:
            yield PropertyProblem(each.number, f"{each.packet.name} has the DSCP of data, {each.datagram.dscp}")


def endpoint_answers(trail: Trail) -> Iterator[PropertyProblem]:
    """Every endpoint request that arrived is answered with its probe_id and timestamp."""
    answers = trail.of(Opcode.ENDPOINT_RESPONSE, judged=True)
    for each in some([one for one in trail.of(Opcode.ENDPOINT_REQUEST) if not one.is_lost], "endpoint request"):
        wanted = each.message.bth.psn & 0xFFFF, each.message.erth.tx_timestamp
        found = ((answer.message.bth.psn & 0xFFFF, answer.message.eeth.tx_timestamp) for answer in answers)
        if wanted not in found:
            yield PropertyProblem(each.number, f"request {wanted[0]} is not answered with its timestamp")
