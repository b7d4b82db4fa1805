"""Judge a conversation, or what was captured of one, by the properties that its packets must have."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from openmrc.conform import answers, in_flight, requests
from openmrc.conform.conversation import TapEntry, TestConversation
from openmrc.conform.crafting import reserved_bits
from openmrc.conform.datagrams import REQUESTER_SIDE, TapPacket
from openmrc.conform.language import PartOfDevice, ScriptError, ScriptStep
from openmrc.conform.relay import CHANGES, changed
from openmrc.conform.trail import NothingToJudgeError, PacketProperty, PropertyProblem, Trail, TrailPacket, some
from openmrc.wire.codes import Opcode
from openmrc.wire.headers import stack

PSNS_OF_AN_MPR = 128


def _judged(trail: Trail) -> list[TrailPacket]:
    return some([each for each in trail.read() if each.is_judged], "packet")


def icrc(trail: Trail) -> Iterator[PropertyProblem]:
    """Every whole packet ends with the ICRC over its final headers."""
    for each in _judged(trail):
        if each.packet.icrc_ok is False:
            yield PropertyProblem(each.number, f"the ICRC of {each.packet.name} is wrong")


def well_formed(trail: Trail) -> Iterator[PropertyProblem]:
    """Every packet has an opcode of MRC and the length that its headers and payload add up to."""
    if not any(each.is_judged for each in trail.packets):
        raise NothingToJudgeError("no packet was seen")
    for each in trail.packets:
        if each.is_judged and each.packet.message is None:
            yield PropertyProblem(each.number, each.packet.problem)


def constants(trail: Trail) -> Iterator[PropertyProblem]:
    """Fields with one value have it: transport version 0, P_Key 0xFFFF, ftype 1, cc_type of a NACK 2."""
    for each in _judged(trail):
        for part in each.message.parts:
            for field in part.header.fields:
                wrong = field.sends is not None and field.listed and not part.raw
                if wrong and part.values[field.name] != field.sends:
                    text = f"{part.header.name}.{field.name} is {part.values[field.name]:#x}, not {field.sends:#x}"
                    yield PropertyProblem(each.number, text)


def reserved(trail: Trail) -> Iterator[PropertyProblem]:
    """Bits that belong to no field are zero."""
    for each in _judged(trail):
        body = each.datagram.body
        for position, mask in reserved_bits(stack(each.message.opcode, bool(each.message.bth.ts))):
            if position < len(body) and body[position] & mask:
                text = f"byte {position} of {each.packet.name} has reserved bits {body[position] & mask:#04x}"
                yield PropertyProblem(each.number, text)


# Name, the clause that it shows, and the function that judges.
PROPERTIES = {
    "window-shrinks": PacketProperty("nscc-decrease", in_flight.window_shrinks, follows_timing=True),
    "icrc": PacketProperty("wire-icrc", icrc),
    "well-formed": PacketProperty("wire-lengths", well_formed),
    "constants": PacketProperty("wire-layout", constants),
    "reserved-bits": PacketProperty("wire-layout", reserved),
    "segmentation": PacketProperty("segmentation", requests.segmentation),
    "reth": PacketProperty("reth-in-every-packet", requests.reth),
    "message-numbers": PacketProperty("message-numbers", requests.message_numbers),
    "new-psns": PacketProperty("message-numbers", requests.new_psns),
    "retransmissions": PacketProperty("retransmission", requests.retransmissions),
    "other-path": PacketProperty("retransmission", requests.other_path, follows_timing=True),
    "window": PacketProperty("mpr-requester", requests.window),
    "ends-with-request": PacketProperty("ack-request", requests.ends_with_request, follows_timing=True),
    "plane-shares": PacketProperty("spray-planes", requests.plane_shares, follows_timing=True),
    "rotation": PacketProperty("spray-rotation", requests.rotation, follows_timing=True),
    "sack-truth": PacketProperty("sack-bitmap", answers.sack_truth),
    "sack-base": PacketProperty("sack-bitmap-base", answers.sack_base),
    "reflected": PacketProperty("wire-entropy", answers.reflected),
    "marks-answered": PacketProperty("sack-trigger-ecn", answers.marks_answered, wants_answers=True),
    "probes-answered": PacketProperty("sack-trigger-probe", answers.probes_answered, wants_answers=True),
    "trims-answered": PacketProperty("trim-nack", answers.trims_answered, wants_answers=True),
    "one-answer": PacketProperty("sack-trigger-request", answers.one_answer),
    "acknowledgements": PacketProperty("transport-ack", answers.acknowledgements),
    "received-bytes": PacketProperty("cc-state-rcvd-bytes", answers.received_bytes),
    "control-class": PacketProperty("control-class", answers.control_class),
    "endpoint-answers": PacketProperty("endpoint-response", answers.endpoint_answers, wants_answers=True),
}


def trail_of(conversation: TestConversation, part: PartOfDevice) -> Trail:
    """Return what a test saw, as properties judge it."""
    entries = conversation.entries[conversation.life :]
    packets = [_packet(conversation, entry, entry.packet, part) for entry in entries if entry.packet is not None]
    wanted = conversation.wanted
    window = (wanted.granted or wanted.mpr) * PSNS_OF_AN_MPR
    return Trail(packets, conversation.ends.requester.psn, wanted.mtu, window, wanted.planes)


def _packet(conversation: TestConversation, entry: TapEntry, seen: TapPacket, part: PartOfDevice) -> TrailPacket:
    if part == PartOfDevice.BOTH:
        from_requester = entry.side == REQUESTER_SIDE
    else:
        from_requester = entry.from_device == (part == PartOfDevice.REQUESTER)
    if entry.action in CHANGES:  # judged as the other end sees it
        seen = replace(seen, datagram=changed(entry.action, seen.datagram))
    message = seen.message
    is_write = message is not None and message.opcode <= Opcode.WRITE_ONLY_IMM
    psn = conversation.relative(message.bth.psn) if message is not None and is_write else 0
    lost = entry.action in ("drop", "corrupt") or seen.icrc_ok is False
    return TrailPacket(entry.number, entry.at, from_requester, entry.from_device, seen, psn, lost)


def judge(name: str, trail: Trail) -> list[PropertyProblem]:
    """Return the packets that break a property; raise NothingToJudgeError if there are none that it is about."""
    return list(PROPERTIES[name].judge(trail))


def check_properties(steps: Sequence[ScriptStep]) -> None:
    """Raise ScriptError if a line judges by a property that there is not."""
    for step in steps:
        if step.kind == "=" and step.subject not in PROPERTIES:
            raise ScriptError(f"{step.place}: {step.subject!r} is not a property: {', '.join(PROPERTIES)}")
