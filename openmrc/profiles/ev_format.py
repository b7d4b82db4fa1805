"""Expansion of entropy values into packet bits: formats and fields.

An EV is 32 bytes. Its bits are consumed from the most significant bit of byte 0 on, and the expanded value is packed in
the same order. A *format* defines the width of each part of the expanded value; the *fields* of a profile define its
contents: a fixed value, with bits of the EV where the mask of the field is set. Rules: `mrc_ctl.h` of
opencomputeproject/OCP-Multipath-Reliable-Connection (MRC §10, `ev_profile_attr`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from math import prod

from openmrc.errors import InvalidArgumentError, TooBigError

EV_BYTES = 32
EV_BITS = 8 * EV_BYTES
MAX_FIELD_BITS = 32  # values and masks of a field are 32-bit
MAX_FORMAT_FIELD_BITS = 255  # the API keeps a format's width in 8 bits


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
        cap = WIDTH_CAPS.get(self.mode)
        if cap is None:
            raise InvalidArgumentError(f"mode: {self.mode!r} is not one of stev, srv6, udp")
        if not self.widths:
            raise InvalidArgumentError("widths: empty; at least one field is needed")
        for index, width in enumerate(self.widths):
            _check_range(f"widths[{index}]", width, 1, MAX_FORMAT_FIELD_BITS)
        if self.bits > cap:
            raise TooBigError(f"widths: they sum to {self.bits} bits; {_name(self.mode)} carries at most {cap}")

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
    def ev_bits(self) -> int:
        """Return the number of EV bits that this field takes."""
        return self.mask.bit_count()

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the least and greatest number to generate."""
        if self.min_val == 0 and self.max_val == 0:
            return 0, _ones(self.ev_bits)
        return self.min_val, self.max_val

    def holding(self, number: int) -> int:
        """Return the value of the field with `number`, of `ev_bits` bits, spread over the mask, top bit first."""
        value = self.init_val & ~self.mask
        remaining = self.mask
        while remaining:  # from the lowest bit of both
            lowest = remaining & -remaining
            if number & 1:
                value |= lowest
            number >>= 1
            remaining ^= lowest
        return value

    def number_in(self, value: int) -> int:
        """Return the number whose bits stand under the mask of a value; the inverse of `holding`."""
        number, mask = 0, self.mask
        for bit in range(self.width - 1, -1, -1):
            if mask >> bit & 1:
                number = number << 1 | value >> bit & 1
        return number


@dataclass(frozen=True)
class EvExpansion:
    """A format and its fields, validated against each other."""

    format: EvBitWidths
    fields: tuple[EvField, ...]

    def __post_init__(self) -> None:
        """Check the restrictions of the controller API; the error names field, value and allowed values."""
        _check_count(self.format, self.fields)
        for index, field in enumerate(self.fields):
            _check_field(f"fields[{index}]", field)
        _check_widths(self.format, self.fields)

    @property
    def ev_bits(self) -> int:
        """Return the number of leading bits of an EV that are used; the others must be zero."""
        return sum(field.ev_bits for field in self.fields)

    @property
    def choices(self) -> int:
        """Return the number of different EVs within the bounds of the fields."""
        return prod(most - least + 1 for least, most in (field.bounds for field in self.fields))

    def numbers(self, ev: bytes) -> list[int]:
        """Return the number that an EV holds for each field."""
        self.check(ev)
        bits, left = int.from_bytes(ev, "big"), EV_BITS
        numbers = []
        for field in self.fields:
            left -= field.ev_bits
            numbers.append(bits >> left & _ones(field.ev_bits))
        return numbers

    def packed(self, numbers: Sequence[int]) -> bytes:
        """Return the EV with these numbers for the fields; the inverse of `numbers()`."""
        bits = 0
        for field, number in zip(self.fields, numbers, strict=True):
            bits = bits << field.ev_bits | number
        return (bits << EV_BITS - self.ev_bits).to_bytes(EV_BYTES, "big")

    def expand(self, ev: bytes) -> bytes:
        """Return the 32 bytes that the packet carries for `ev`, left-aligned."""
        expanded, used = 0, 0
        for field, width, number in zip(self.fields, self.format.widths, self.numbers(ev), strict=False):
            expanded = expanded << width | field.holding(number)  # a narrow field has zeros to its left
            used += width
        return (expanded << EV_BITS - used).to_bytes(EV_BYTES, "big")

    def contracted(self, expanded: bytes) -> bytes | None:
        """Return the EV within the bounds that expands to these 32 bytes; None if there is none."""
        bits, left, numbers = int.from_bytes(expanded, "big"), EV_BITS, []
        for field, width in zip(self.fields, self.format.widths, strict=False):
            left -= width
            part = bits >> left & _ones(width)
            numbers.append(field.number_in(part))
        ev = self.packed(numbers)
        return ev if self.expand(ev) == expanded and self.is_within_bounds(ev) else None

    def check(self, ev: bytes) -> None:
        """Raise for an EV of another size, or with bits set that no field takes."""
        if len(ev) != EV_BYTES:
            raise InvalidArgumentError(f"{len(ev)} bytes; an EV has {EV_BYTES}")
        unused = int.from_bytes(ev, "big") & _ones(EV_BITS - self.ev_bits)
        if unused:
            bit = EV_BITS - unused.bit_length()
            raise InvalidArgumentError(
                f"{ev.hex()} has bit {bit} set; the fields take {self.ev_bits} bits, those after them must be zero"
            )

    def is_within_bounds(self, ev: bytes) -> bool:
        """Return whether `ev` can be generated: every number is within the bounds of its field."""
        pairs = zip(self.fields, self.numbers(ev), strict=True)
        return all(field.bounds[0] <= number <= field.bounds[1] for field, number in pairs)


def _check_count(form: EvBitWidths, fields: Sequence[EvField]) -> None:
    if not fields:
        raise InvalidArgumentError("fields: empty; at least one is needed")
    if len(fields) > len(form.widths):
        raise InvalidArgumentError(f"fields: {len(fields)} of them; the format has {len(form.widths)}")


def _check_field(name: str, field: EvField) -> None:
    _check_range(f"{name}.width", field.width, 1, MAX_FIELD_BITS)
    for part in ("init_val", "mask"):
        _check_fits(f"{name}.{part}", getattr(field, part), field.width, "the field")
    _check_fits(f"{name}.max_val", field.max_val, field.ev_bits, "the mask")
    _check_fits(f"{name}.min_val", field.min_val, field.ev_bits, "the mask")
    if field.min_val > field.max_val:
        raise InvalidArgumentError(f"{name}.min_val: {field.min_val:#x} is above max_val, {field.max_val:#x}")


def _check_widths(form: EvBitWidths, fields: Sequence[EvField]) -> None:
    total = sum(field.width for field in fields)
    if total > form.bits:
        raise InvalidArgumentError(f"fields: their widths sum to {total} bits; the format has {form.bits}")
    for index, (field, width) in enumerate(zip(fields, form.widths, strict=False)):
        if field.width > width:  # its top bits would be lost silently
            raise InvalidArgumentError(
                f"fields[{index}].width: {field.width} bits; the format's field {index} has {width}"
            )


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidArgumentError(f"{name}: {value} is not in {least}..{most}")


def _check_fits(name: str, value: int, bits: int, place: str) -> None:
    if not 0 <= value <= _ones(bits):
        raise InvalidArgumentError(
            f"{name}: {value:#x} does not fit; {place} has {bits} bits, so 0..{_ones(bits):#x} is allowed"
        )


def _ones(bits: int) -> int:
    return (1 << bits) - 1


def _name(mode: EvFormatMode) -> str:
    return str(mode.name).lower()
