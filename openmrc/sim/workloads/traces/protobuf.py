"""The part of Protocol Buffers that traces need: length-prefixed messages, and the fields of one message.

Public source: protobuf.dev, "Encoding" and "Techniques" (streaming multiple messages). Every length is
checked against the available bytes, a varint has at most ten bytes, and groups (deprecated) are refused.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import BinaryIO

MOST_MESSAGE = 16 << 20  # bytes of one message; a node of a trace has a few hundred
_MOST_VARINT = 10  # bytes


class BadMessage(Exception):
    """Bytes that are not a message; the text gives the reason."""


class WireType(IntEnum):
    """Encoding of the value of a field."""

    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    FIXED32 = 5


_VARINT, _LENGTH = int(WireType.VARINT), int(WireType.LENGTH)  # as plain integers, which compare faster
_SIZES = {int(WireType.FIXED64): 8, int(WireType.FIXED32): 4}
Field = tuple[int, int, int, int]  # number, wire type, value or begin of its bytes, end of its bytes


def messages(file: BinaryIO) -> Iterator[bytes]:
    """Yield the messages of a file, each preceded by its length as a varint."""
    while (size := _length(file)) is not None:
        if size > MOST_MESSAGE:
            raise BadMessage(f"a message of {size:,} bytes; the limit is {MOST_MESSAGE:,}")
        data = file.read(size)
        if len(data) < size:
            raise BadMessage(f"ends within a message: {len(data):,} of {size:,} bytes")
        yield data


def _length(file: BinaryIO) -> int | None:
    """Return the next length, or None at the end of the file."""
    value = 0
    for at in range(_MOST_VARINT):
        byte = file.read(1)
        if not byte:
            if at:
                raise BadMessage("ends within a length")
            return None
        value |= (byte[0] & 0x7F) << (7 * at)
        if byte[0] < 0x80:
            return value
    raise BadMessage("a length of more than ten bytes")


def fields(data: bytes, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in data[begin:end]."""
    at = begin
    while at < end:
        key, at = varint(data, at, end)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise BadMessage("a field with number 0")
        if kind == _VARINT:
            value, at = varint(data, at, end)
            yield number, kind, value, at
            continue
        if kind == _LENGTH:
            size, at = varint(data, at, end)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise BadMessage(f"field {number} has wire type {kind}")
        if size > end - at:
            raise BadMessage(f"field {number} is longer than its message")
        yield number, kind, at, at + size
        at += size


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at a position, as 64 bits, and the position after it."""
    if at < end and data[at] < 0x80:  # nearly all have one byte
        return data[at], at + 1
    value = shift = 0
    for place in range(at, min(end, at + _MOST_VARINT)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise BadMessage("a varint that does not end")


def packed(data: bytes, field: Field) -> Iterator[int]:
    """Yield the integers of a repeated field: packed, or a single one."""
    _, kind, at, end = field
    if kind == WireType.VARINT:
        yield at
        return
    if kind != WireType.LENGTH:
        raise BadMessage(f"field {field[0]} has wire type {kind}")
    while at < end:
        value, at = varint(data, at, end)
        yield value


def text(data: bytes, field: Field) -> str:
    """Return a string; refuse invalid UTF-8."""
    if field[1] != WireType.LENGTH:
        raise BadMessage(f"field {field[0]} is not a string")
    try:
        return data[field[2] : field[3]].decode()
    except UnicodeDecodeError:
        raise BadMessage(f"field {field[0]} is not UTF-8") from None
