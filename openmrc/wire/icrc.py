"""Invariant CRC at the end of every packet (RoCEv2, InfiniBand Architecture volume 1, Annex A17).

It is the CRC-32 of Ethernet over eight bytes of ones (in place of InfiniBand's local header), the IP and UDP headers,
BTH and everything after it. Fields that switches may change are replaced by ones: type of service or traffic class,
flow label, time to live, both checksums, and byte 4 of BTH. The UDP source port is covered, so a packet that moves to
another entropy value needs a new ICRC.

With SRv6 encapsulation it covers the inner IP header. If the destination address itself is the path (uSIDs are
shifted out on the way), it covers the final address. IPv4 identification is 0: the datagrams are atomic (RFC 6864)
and a socket does not report it.

In the data path a *flow* is a row of `FLOW_LENGTH` bytes with the masked headers up to byte 4 of BTH. The CRC over
them depends on the source port, the length and the first word of BTH only, so it is cached between packets. The rest
is read in place, without masking: reading a byte that was just written waits for all earlier writes, including those
of the previous payload, which took as long as the CRC of a whole packet.
"""

import zlib

import numpy as np
from isal import isal_zlib

from openmrc.core.jit import external, kernel, rare_kernel
from openmrc.core.memory import load_be64, store_be32
from openmrc.errors import MisuseError
from openmrc.wire.codec import Bytes, Words
from openmrc.wire.codes import UDP_PORT
from openmrc.wire.ip import IPV4_LENGTH, IPV6_LENGTH, PROTOCOL_UDP, UDP_LENGTH, Address
from openmrc.wire.layout import ICRC_LENGTH

# crc32(crc so far, address, bytes): the convention of zlib, with carry-less multiplication.
crc32 = external(isal_zlib.__file__, "crc32_gzip_refl", "uint32", "uint32", "int64", "int64")

_MASKED_LOCAL_HEADER = b"\xff" * 8
_MASKED_BTH_BYTE = 4
_DONT_FRAGMENT = 0x4000

# A flow holds, right-aligned, the ones, IP, UDP and the start of BTH; byte 0 is the offset of the first.
_HEAD = _MASKED_BTH_BYTE + 1  # bytes of BTH that are in it
FLOW_LENGTH = 64 + _HEAD
PREFIX_WORDS = 4  # source port, UDP length, first word of BTH, and the CRC of the flow with them; 0: nothing yet
_BTH_AT = FLOW_LENGTH - _HEAD
_UDP_AT = _BTH_AT - UDP_LENGTH
_IPV4_AT = _UDP_AT - IPV4_LENGTH
_IPV6_AT = _UDP_AT - IPV6_LENGTH
_IPV4_BEGINS = _IPV4_AT - len(_MASKED_LOCAL_HEADER)


def flow(source: Address, destination: Address, destination_port: int = UDP_PORT) -> Bytes:
    """Return the masked headers between two addresses, as a row for `prefix`."""
    if source.version != destination.version:
        raise MisuseError(f"one flow cannot join {source} and {destination}: IP versions differ")
    row = np.zeros(FLOW_LENGTH, np.uint8)
    write_flow(row, source.version, *halves(source), *halves(destination), destination_port)
    return row


def halves(address: Address) -> tuple[int, int]:
    """Return an address as two signed words, as its bytes lie in memory; of IPv4 the first is 0."""
    padded = address.packed.rjust(12, b"\0").ljust(16, b"\0") if address.version == 4 else address.packed
    return int.from_bytes(padded[:8], "little", signed=True), int.from_bytes(padded[8:], "little", signed=True)


@rare_kernel
def write_flow(
    row: Bytes, version: int, from_high: int, from_low: int, to_high: int, to_low: int, destination_port: int
) -> None:
    """Write the masked headers between two addresses into a row of zeros.

    Addresses are pairs of words as their bytes lie in memory on a little-endian machine; IPv4 has four bytes in `low`.
    """
    length = IPV4_LENGTH if version == 4 else IPV6_LENGTH
    at = _UDP_AT - length
    row[0] = at - len(_MASKED_LOCAL_HEADER)
    for byte in range(at - len(_MASKED_LOCAL_HEADER), at):
        row[byte] = 0xFF
    if version == 4:
        row[at] = 0x45
        row[at + 6] = _DONT_FRAGMENT >> 8
        row[at + 9] = PROTOCOL_UDP
        for masked in (1, 8, 10, 11):  # type of service, time to live, checksum
            row[at + masked] = 0xFF
        _write_address(row, at + 12, from_low, 4)
        _write_address(row, at + 16, to_low, 4)
    else:
        row[at] = 0x6F
        row[at + 6] = PROTOCOL_UDP
        for masked in (1, 2, 3, 7):  # traffic class, flow label, hop limit
            row[at + masked] = 0xFF
        _write_address(row, at + 8, from_high, 8)
        _write_address(row, at + 16, from_low, 8)
        _write_address(row, at + 24, to_high, 8)
        _write_address(row, at + 32, to_low, 8)
    row[_UDP_AT + 2] = destination_port >> 8 & 0xFF
    row[_UDP_AT + 3] = destination_port & 0xFF
    row[_UDP_AT + 6] = 0xFF
    row[_UDP_AT + 7] = 0xFF
    row[FLOW_LENGTH - 1] = 0xFF


@kernel
def _write_address(row: Bytes, at: int, word: int, length: int) -> None:
    for byte in range(length):
        row[at + byte] = word >> 8 * byte & 0xFF


@kernel
def prefix(flow: Bytes, known: Words, source_port: int, payload_length: int, bth: int) -> int:
    """Return the CRC of everything up to byte 4 of BTH in a packet whose UDP payload has `payload_length` bytes.

    `bth` is the memory address of its BTH; `known` caches the last result for this flow in `PREFIX_WORDS` words.
    """
    udp_length = UDP_LENGTH + payload_length
    word = load_be64(bth) >> 32
    if known[2] != word or known[0] != source_port or known[1] != udp_length:
        known[0] = source_port
        known[1] = udp_length
        known[2] = word
        _fill(flow, source_port, udp_length)
        store_be32(flow.ctypes.data + _BTH_AT, word)
        begins = np.int64(flow[0])
        known[3] = crc32(0, flow.ctypes.data + begins, FLOW_LENGTH - begins)
    return int(known[3])


@kernel
def seal(
    crc: int, header: Bytes, at: int, header_length: int, payload: int, payload_length: int, trailer_at: int
) -> int:
    """Write pad and ICRC of a packet at `header[trailer_at:]` and return their length, `trailer_length`.

    `crc` is the result of `prefix`; the headers are `header[at : at + header_length]`, `payload` is the memory address
    of the payload, which lies elsewhere or was copied behind the headers: then `trailer_at` is behind it.
    """
    begin = header.ctypes.data + at + _HEAD
    pad = -payload_length & 3
    for byte in range(pad):
        header[trailer_at + byte] = 0
    if trailer_at == at + header_length + payload_length:  # in one piece: each costs a reduction of 128 bits
        crc = crc32(crc, begin, header_length - _HEAD + payload_length + pad)
    else:
        crc = crc32(crc, begin, header_length - _HEAD)
        crc = crc32(crc, payload, payload_length)
        if pad:
            crc = crc32(crc, header.ctypes.data + trailer_at, pad)
    for byte in range(ICRC_LENGTH):
        header[trailer_at + pad + byte] = crc >> 8 * byte & 0xFF
    return pad + ICRC_LENGTH


@kernel
def trailer_length(payload_length: int) -> int:
    """Return the length of pad and ICRC after a payload of this length, 4 to 7 bytes."""
    return (-payload_length & 3) + ICRC_LENGTH


@kernel
def is_intact(crc: int, buffer: Bytes, at: int, length: int) -> bool:
    """Return whether the UDP payload `buffer[at : at + length]`, BTH to ICRC, has the correct ICRC.

    `crc` is the result of `prefix`. `length` must have been accepted by `decode`. Trimmed packets have no ICRC.
    """
    crc = crc32(crc, buffer.ctypes.data + at + _HEAD, length - _HEAD - ICRC_LENGTH)
    end = at + length - ICRC_LENGTH
    wrong = np.int64(0)
    for byte in range(ICRC_LENGTH):
        wrong |= np.int64(buffer[end + byte]) ^ (crc >> 8 * byte & 0xFF)
    return bool(wrong == 0)


@kernel
def _fill(flow: Bytes, source_port: int, udp_length: int) -> None:
    if flow[0] == _IPV4_BEGINS:
        length_at, length = _IPV4_AT + 2, udp_length + IPV4_LENGTH
    else:
        length_at, length = _IPV6_AT + 4, udp_length
    flow[length_at] = length >> 8 & 0xFF
    flow[length_at + 1] = length & 0xFF
    flow[_UDP_AT] = source_port >> 8 & 0xFF
    flow[_UDP_AT + 1] = source_port & 0xFF
    flow[_UDP_AT + 4] = udp_length >> 8 & 0xFF
    flow[_UDP_AT + 5] = udp_length & 0xFF


def icrc(ip: bytes, udp: bytes, payload: bytes) -> int:
    """Return the ICRC of a packet: its IP header, its UDP header, and BTH to pad, as they are on the wire.

    The four bytes are read as a big-endian number, as Wireshark shows it.
    """
    masked_bth = payload[:_MASKED_BTH_BYTE] + b"\xff" + payload[_MASKED_BTH_BYTE + 1 :]
    crc = zlib.crc32(_MASKED_LOCAL_HEADER + _mask_ip(ip) + udp[:6] + b"\xff\xff")
    return int.from_bytes(zlib.crc32(masked_bth, crc).to_bytes(ICRC_LENGTH, "little"), "big")


def _mask_ip(header: bytes) -> bytes:
    masked = bytearray(header)
    if header[0] >> 4 == 4:
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF  # type of service, time to live, checksum
    else:
        masked[0] |= 0x0F
        masked[1] = masked[2] = masked[3] = masked[7] = 0xFF  # traffic class, flow label, hop limit
    return bytes(masked)
