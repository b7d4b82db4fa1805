"""Capture files: written as pcapng, read as pcapng or classic pcap.

One interface per plane, nanosecond timestamps. Files are read as a stream, one block in memory at a time; lengths in
the file are checked against `LONGEST_BLOCK` before use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO, Literal

from openmrc.errors import Malformed, Truncated
from openmrc.units import NS_PER_S

ByteOrder = Literal["little", "big"]
BYTE_ORDERS: tuple[ByteOrder, ...] = ("little", "big")

LONGEST_BLOCK = 1 << 20  # bytes; a frame has at most 64 KiB plus headers, options are small
SNAPLEN = 262_144  # snapshot length in bytes: tcpdump's default

_SECTION, _INTERFACE, _SIMPLE, ENHANCED = 0x0A0D0D0A, 1, 3, 6  # block types
_MAGIC = 0x1A2B3C4D
_CLASSIC = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}  # magic -> ns per tick
_COMMENT, _IF_NAME, _IF_TSRESOL, _IF_TSOFFSET = 1, 2, 9, 14


class LinkType(IntEnum):
    """Link-layer type (registry of the Tcpdump group)."""

    NULL = 0  # BSD loopback: an address family in the byte order of the host that captured
    ETHERNET = 1
    RAW = 101
    LOOP = 108  # OpenBSD loopback: the same in network byte order
    LINUX_SLL = 113
    IPV4 = 228
    IPV6 = 229
    LINUX_SLL2 = 276


@dataclass(frozen=True)
class PcapFrame:
    number: int  # from 1, as in Wireshark
    time_ns: int  # since 1970
    interface: str
    link_type: int
    data: bytes
    original_length: int  # bytes on the wire


class PcapngWriter:
    """Writes frames of several interfaces to one file."""

    def __init__(self, file: BinaryIO, interfaces: Sequence[str], link_type: LinkType = LinkType.RAW) -> None:
        self._file = file
        self._write(_SECTION, _u32(_MAGIC) + _u16(1) + _u16(0) + b"\xff" * 8)
        for name in interfaces:
            options = _option(_IF_NAME, name.encode()) + _option(_IF_TSRESOL, b"\x09") + _option(0, b"")
            self._write(_INTERFACE, _u16(link_type) + _u16(0) + _u32(SNAPLEN) + options)

    def write(self, interface: int, time_ns: int, data: bytes, comment: str = "", original_length: int = 0) -> None:
        """Append a frame of `interface`, counted from 0 in the order given.

        `original_length` is the length in bytes of a frame that was truncated.
        """
        kept = data[:SNAPLEN]
        lengths = _u32(len(kept)) + _u32(max(original_length, len(data)))
        head = _u32(interface) + _u32(time_ns >> 32) + _u32(time_ns & 0xFFFFFFFF) + lengths
        options = _option(_COMMENT, comment.encode()) + _option(0, b"") if comment else b""
        self._write(ENHANCED, head + _padded(kept) + options)

    def _write(self, kind: int, body: bytes) -> None:
        length = _u32(len(body) + 12)
        self._file.write(_u32(kind) + length + body + length)


def _u16(number: int) -> bytes:
    return number.to_bytes(2, "little")


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return _u16(code) + _u16(len(value)) + _padded(value)


def read_frames(file: BinaryIO) -> Iterator[PcapFrame]:
    """Yield the frames of a capture of either format and byte order; raise WireError where the file is damaged."""
    source = _Source(file)
    magic = source.take(4, "capture file")
    if int.from_bytes(magic, "little") == _SECTION:
        yield from _PcapngReader(source).frames()
        return
    for order in BYTE_ORDERS:
        if int.from_bytes(magic, order) in _CLASSIC:
            yield from _classic_frames(source, order, _CLASSIC[int.from_bytes(magic, order)])
            return
    raise Malformed("neither pcapng nor pcap", 0)


class _Source:
    """Sequential reader with its offset; allocates at most `LONGEST_BLOCK` bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.at = 0

    def take(self, length: int, what: str) -> bytes:
        if length > LONGEST_BLOCK:
            raise Malformed(f"{what} of {length} bytes is longer than {LONGEST_BLOCK}", self.at)
        data = self._file.read(length)
        if len(data) < length:
            raise Truncated(f"truncated {what}", self.at + len(data))
        self.at += length
        return data

    def take_or_end(self, length: int, what: str) -> bytes:
        """Return the next `size` bytes, or b"" at the end of the file."""
        data = self._file.read(length)
        self.at += len(data)
        if data and len(data) < length:
            raise Truncated(f"truncated {what}", self.at)
        return data


@dataclass(frozen=True)
class _Interface:
    name: str
    link_type: int
    ticks: int  # per second
    offset: int  # s


class _PcapngReader:
    def __init__(self, source: _Source) -> None:
        self._source = source
        self._order: ByteOrder = "little"
        self._interfaces: list[_Interface] = []
        self._frames = 0

    def frames(self) -> Iterator[PcapFrame]:
        kind_bytes = _u32(_SECTION)
        while kind_bytes:
            kind = self._number(kind_bytes)
            if kind == _SECTION:
                self._begin_section()
            else:
                body = self._body(kind)
                if kind == _INTERFACE:
                    self._interfaces.append(self._interface(body))
                elif kind in (ENHANCED, _SIMPLE):
                    self._frames += 1
                    yield self._enhanced(body) if kind == ENHANCED else self._simple(body)
            kind_bytes = self._source.take_or_end(4, "block")

    def _number(self, data: bytes) -> int:
        return int.from_bytes(data, self._order)

    def _body(self, kind: int) -> bytes:
        length = self._number(self._source.take(4, "block"))
        if length < 12 or length % 4:
            raise Malformed("bad block length", self._source.at - 4)
        body = self._source.take(length - 12, f"block of type {kind:#x}")
        if self._number(self._source.take(4, "block")) != length:
            raise Malformed("block lengths differ", self._source.at - 4)
        return body

    def _begin_section(self) -> None:
        length, magic = self._source.take(4, "section header"), self._source.take(4, "section header")
        for order in BYTE_ORDERS:
            if int.from_bytes(magic, order) == _MAGIC:
                self._order = order
                break
        else:
            raise Malformed("bad byte-order magic", self._source.at - 4)
        if self._number(length) < 28 or self._number(length) % 4:
            raise Malformed("bad section header length", self._source.at - 8)
        self._source.take(self._number(length) - 12, "section header")
        self._interfaces = []

    def _interface(self, body: bytes) -> _Interface:
        if len(body) < 8:
            raise Truncated("truncated interface description", self._source.at)
        name, ticks, offset = f"if{len(self._interfaces)}", 10**6, 0
        for code, value in self._options(body[8:]):
            if code == _IF_NAME:
                name = value.decode(errors="replace").rstrip("\0")
            elif code == _IF_TSRESOL and len(value) == 1:
                ticks = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
            elif code == _IF_TSOFFSET and len(value) == 8:
                offset = int.from_bytes(value, self._order, signed=True)
        return _Interface(name, self._number(body[:2]), ticks, offset)

    def _options(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at + 4 <= len(data):
            code, length = self._number(data[at : at + 2]), self._number(data[at + 2 : at + 4])
            if code == 0:
                return
            if at + 4 + length > len(data):
                raise Truncated("truncated option", self._source.at)
            yield code, data[at + 4 : at + 4 + length]
            at += 4 + length + -length % 4

    def _enhanced(self, body: bytes) -> PcapFrame:
        if len(body) < 20:
            raise Truncated("truncated packet block", self._source.at)
        index, high, low, kept, original = (self._number(body[i : i + 4]) for i in range(0, 20, 4))
        if kept > len(body) - 20:
            raise Malformed("packet longer than its block", self._source.at)
        interface = self._known(index)
        time_ns = (high << 32 | low) * NS_PER_S // interface.ticks + interface.offset * NS_PER_S
        return PcapFrame(self._frames, time_ns, interface.name, interface.link_type, body[20 : 20 + kept], original)

    def _simple(self, body: bytes) -> PcapFrame:
        if len(body) < 4:
            raise Truncated("truncated packet block", self._source.at)
        interface, original = self._known(0), self._number(body[:4])
        return PcapFrame(self._frames, 0, interface.name, interface.link_type, body[4 : 4 + original], original)

    def _known(self, index: int) -> _Interface:
        if index >= len(self._interfaces):
            raise Malformed(f"packet of interface {index}, which is not described", self._source.at)
        return self._interfaces[index]


def _classic_frames(source: _Source, order: ByteOrder, tick_ns: int) -> Iterator[PcapFrame]:
    head = source.take(20, "pcap header")
    link_type = int.from_bytes(head[16:20], order) & 0x0FFFFFFF
    number = 0
    while record := source.take_or_end(16, "packet header"):
        seconds, ticks, kept, original = (int.from_bytes(record[i : i + 4], order) for i in range(0, 16, 4))
        data = source.take(kept, "packet")
        number += 1
        yield PcapFrame(number, seconds * NS_PER_S + ticks * tick_ns, "if0", link_type, data, original)
