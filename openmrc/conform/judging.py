"""Judge a conversation, or what was captured of one, by the properties that its packets must have."""

from __future__ import annotations

from dataclasses import replace

from openmrc.conform.conversation import TapEntry, TestConversation
from openmrc.conform.datagrams import REQUESTER_SIDE
from openmrc.conform.language import PartOfDevice
from openmrc.conform.properties import answers, formats, in_flight, requests
from openmrc.conform.properties.trail import PacketProperty, PropertyProblem, Trail, TrailPacket
from openmrc.conform.relay import CHANGES, changed
from openmrc.errors import ConfigError
from openmrc.wire.codes import Opcode

PSNS_OF_AN_MPR = 128

# Name, the clause that it shows, and the function that judges.
PROPERTIES = {
    "window-shrinks": PacketProperty("nscc-decrease", in_flight.window_shrinks, follows_timing=True),
    "icrc": PacketProperty("wire-icrc", formats.icrc),
    "well-formed": PacketProperty("wire-lengths", formats.well_formed),
    "constants": PacketProperty("wire-layout", formats.constants),
    "reserved-bits": PacketProperty("wire-layout", formats.reserved),
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
    "acknowledgements": PacketProperty("transport-ack", answers.acknowledgements),
    "received-bytes": PacketProperty("cc-state-rcvd-bytes", answers.received_bytes),
    "control-class": PacketProperty("control-class", answers.control_class),
    "endpoint-answers": PacketProperty("endpoint-response", answers.endpoint_answers, wants_answers=True),
}


def trail_of(conversation: TestConversation, part: PartOfDevice) -> Trail:
    """Return what a test saw, as properties judge it."""
    packets = [_packet(conversation, entry, part) for entry in conversation.entries if entry.packet is not None]
    wanted = conversation.wanted
    window = (wanted.granted or wanted.mpr) * PSNS_OF_AN_MPR
    return Trail(packets, conversation.ends.first_psn, wanted.mtu, window, wanted.planes)


def _packet(conversation: TestConversation, entry: TapEntry, part: PartOfDevice) -> TrailPacket:
    if entry.packet is None:
        raise AssertionError("an event is no packet")
    if part == PartOfDevice.BOTH:
        from_requester = entry.side == REQUESTER_SIDE
    else:
        from_requester = entry.from_device == (part == PartOfDevice.REQUESTER)
    entry_packet = entry.packet
    if entry.action in CHANGES:  # judged as the other end sees it
        entry_packet = replace(entry_packet, datagram=changed(entry.action, entry_packet.datagram))
    message = entry.message
    is_write = message is not None and message.opcode <= Opcode.WRITE_ONLY_IMM
    psn = conversation.relative(message.bth.psn) if message is not None and is_write else 0
    lost = entry.action in ("drop", "corrupt") or entry.packet.icrc_ok is False
    return TrailPacket(entry.number, entry.at, from_requester, entry.from_device, entry_packet, psn, lost)


def judge(name: str, trail: Trail) -> list[PropertyProblem]:
    """Return the packets that break a property; raise NothingToJudgeError if there are none that it is about."""
    if name not in PROPERTIES:
        raise ConfigError(f"{name!r} is not a property: {', '.join(PROPERTIES)}")
    return list(PROPERTIES[name].judge(trail))
