"""Properties of every packet by itself: ICRC, constants, reserved bits."""

from __future__ import annotations

from collections.abc import Iterator

from openmrc.conform.crafting import reserved_bits
from openmrc.conform.properties.trail import NothingToJudgeError, PropertyProblem, Trail, TrailPacket, some
from openmrc.wire.headers import stack


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
