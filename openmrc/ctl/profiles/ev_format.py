"""Expansion of entropy values into packet bits: formats and fields.

An EV is 32 bytes. Its bits are consumed from the most significant bit of byte 0 on, and the expanded value is packed in
the same order. A *format* defines the width of each part of the expanded value; the *fields* of a profile define its
contents: a fixed value, with bits of the EV where the mask of the field is set. The rules are kernels of `field_rules`;
here are objects, and words for what they refuse. Source: `mrc_ctl.h` of
opencomputeproject/OCP-Multipath-Reliable-Connection (MRC §10, `ev_profile_attr`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from math import prod

from openmrc.ctl.profiles import field_rules
from openmrc.ctl.profiles.field_rules import MAX_FIELD_BITS, MAX_FORMAT_FIELD_BITS
from openmrc.ctl.profiles.refusals import ProfileRefusal, parts
from openmrc.errors import InvalidArgumentError, TooBigError

EV_BYTES = 32
EV_BITS = 8 * EV_BYTES


class EvFormatMode(IntFlag):
    """Placement of the EV in a packet; values as in the controller API, where devices advertise a mask of them."""

    STEV = 1  # UDP source port and IPv6 flow label, with subfields for switches
    SRV6 = 2  # outer destination address, followed by the segment of an SRH
    UDP = 4  # UDP source port alone


WIDTH_CAPS = {EvFormatMode.STEV: 32, EvFormatMode.SRV6: EV_BITS, EvFormatMode.UDP: 16}  # bits
SRV6_ADDRESS_BITS = 128  # a wider SRV6 format uses an SRH too


@dataclass(frozen=True)
class EvBitWidths:
    """Bit-field widths of an expanded EV."""

    mode: EvFormatMode
    widths: tuple[int, ...]  # bits

    def __post_init__(self) -> None:
        """Raise for a format that no packet can carry."""
        cap = WIDTH_CAPS.get(self.mode, 0)
        refusal, detail = parts(field_rules.widths_verdict(self.widths, cap))
        match refusal:
            case ProfileRefusal.FORMAT_MODE:
                raise InvalidArgumentError(f"mode: {self.mode!r} is not one of stev, srv6, udp")
            case ProfileRefusal.NO_WIDTHS:
                raise InvalidArgumentError("widths: empty; at least one field is needed")
            case ProfileRefusal.WIDTH:
                width = self.widths[detail]
                raise InvalidArgumentError(f"widths[{detail}]: {width} is not in 1..{MAX_FORMAT_FIELD_BITS}")
            case ProfileRefusal.TOO_WIDE:
                raise TooBigError(f"widths: they sum to {detail} bits; {_name(self.mode)} carries at most {cap}")

    @property
    def bits(self) -> int:
        """Return the width of an expanded EV, in bits."""
        return sum(self.widths)

    @property
    def has_srh(self) -> bool:
        """Return whether the second 16 bytes, the segment of an SRH, are used."""
        return self.mode == EvFormatMode.SRV6 and self.bits > SRV6_ADDRESS_BITS


@dataclass(frozen=True)
class EvField:
    """A field: one part of an expanded EV, at most 32 bits."""

    width: int  # bits
    init_val: int = 0  # value where the mask is clear
    min_val: int = 0  # least and greatest generated number, before it is spread over the mask;
    max_val: int = 0  # both zero: no bounds (as in the published samples)
    mask: int = 0  # bits taken from the EV; zero: the field is fixed

    @property
    def words(self) -> tuple[int, int, int, int, int]:
        """Return the field as kernels take it, in the order of `field_rules.FieldColumn`."""
        return self.width, self.init_val, self.min_val, self.max_val, self.mask

    @property
    def ev_bits(self) -> int:
        """Return the number of EV bits that this field takes."""
        return field_rules.bits_of(self.words)

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the least and greatest number to generate."""
        return field_rules.least_of(self.words), field_rules.most_of(self.words)


@dataclass(frozen=True)
class EvExpansion:
    """A format and its fields, validated against each other."""

    format: EvBitWidths
    fields: tuple[EvField, ...]

    def __post_init__(self) -> None:
        """Check the restrictions of the controller API; the error names field, value and allowed values."""
        refusal, detail = parts(field_rules.fields_verdict(self.words, self.format.widths))
        if refusal != ProfileRefusal.NONE:
            raise InvalidArgumentError(_why(refusal, detail, self.format, self.fields))

    @cached_property
    def words(self) -> list[tuple[int, int, int, int, int]]:
        """Return the fields as kernels take them."""
        return [field.words for field in self.fields]

    @property
    def ev_bits(self) -> int:
        """Return the number of leading bits of an EV that are used; the others must be zero."""
        return field_rules.bits_used(self.words)

    @property
    def choices(self) -> int:
        """Return the number of different EVs within the bounds of the fields."""
        return prod(most - least + 1 for least, most in (field.bounds for field in self.fields))

    def numbers(self, ev: bytes) -> list[int]:
        self.check(ev)
        bits, left = int.from_bytes(ev, "big"), EV_BITS
        numbers = []
        for field in self.fields:
            left -= field.ev_bits
            numbers.append(bits >> left & (1 << field.ev_bits) - 1)
        return numbers

    def packed(self, numbers: Sequence[int]) -> bytes:
        bits = 0
        for field, number in zip(self.fields, numbers, strict=True):
            bits = bits << field.ev_bits | number
        return (bits << EV_BITS - self.ev_bits).to_bytes(EV_BYTES, "big")

    def expand(self, ev: bytes) -> bytes:
        """Return the 32 bytes that the packet carries for `ev`, left-aligned."""
        self.check(ev)
        return _bytes(field_rules.expanded(self.words, self.format.widths, int.from_bytes(ev, "big"), EV_BITS))

    def contracted(self, carried: bytes) -> bytes | None:
        """Return the EV within the bounds that expands to these 32 bytes; None if there is none."""
        ev = field_rules.contracted(self.words, self.format.widths, int.from_bytes(carried, "big"), EV_BITS)
        return None if ev < 0 else _bytes(ev)

    def check(self, ev: bytes) -> None:
        """Raise for an EV of another size, or with bits set that no field takes."""
        if len(ev) != EV_BYTES:
            raise InvalidArgumentError(f"{len(ev)} bytes; an EV has {EV_BYTES}")
        value = int.from_bytes(ev, "big")
        refusal, bit = parts(field_rules.ev_verdict(self.words, value, EV_BITS))
        if refusal == ProfileRefusal.UNUSED_BIT:
            raise InvalidArgumentError(
                f"{ev.hex()} has bit {bit} set; the fields take {self.ev_bits} bits, those after them must be zero"
            )

    def is_within_bounds(self, ev: bytes) -> bool:
        """Return whether `ev` can be generated: every number is within the bounds of its field."""
        pairs = zip(self.fields, self.numbers(ev), strict=True)
        return all(field.bounds[0] <= number <= field.bounds[1] for field, number in pairs)


def _why(refusal: ProfileRefusal, detail: int, form: EvBitWidths, fields: Sequence[EvField]) -> str:
    """Return what is wrong with fields."""
    match refusal:
        case ProfileRefusal.NO_FIELDS:
            return "fields: empty; at least one is needed"
        case ProfileRefusal.TOO_MANY_FIELDS:
            return f"fields: {len(fields)} of them; the format has {len(form.widths)}"
        case ProfileRefusal.FIELDS_TOO_WIDE:
            return f"fields: their widths sum to {detail} bits; the format has {form.bits}"
    name, field = f"fields[{detail}]", fields[detail]
    match refusal:
        case ProfileRefusal.FIELD_WIDTH:
            return f"{name}.width: {field.width} is not in 1..{MAX_FIELD_BITS}"
        case ProfileRefusal.FIELD_BOUNDS:
            return f"{name}.min_val: {field.min_val:#x} is above max_val, {field.max_val:#x}"
        case ProfileRefusal.FIELD_TOO_WIDE:
            return f"{name}.width: {field.width} bits; the format's field {detail} has {form.widths[detail]}"
    part = _PARTS[refusal]
    place, bits = ("the mask", field.ev_bits) if part in ("min_val", "max_val") else ("the field", field.width)
    allowed = f"{place} has {bits} bits, so 0..{(1 << bits) - 1:#x} is allowed"
    return f"{name}.{part}: {getattr(field, part):#x} does not fit; {allowed}"


_PARTS = {
    ProfileRefusal.FIELD_INIT: "init_val",
    ProfileRefusal.FIELD_MASK: "mask",
    ProfileRefusal.FIELD_MAX: "max_val",
    ProfileRefusal.FIELD_MIN: "min_val",
}


def _bytes(value: int) -> bytes:
    return value.to_bytes(EV_BYTES, "big")


def _name(mode: EvFormatMode) -> str:
    return str(mode.name).lower()
