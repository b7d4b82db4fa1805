"""What does the wire cost per packet?

    python -m bench.wire.codec

Prints CPU time per call, the best of five runs, compiled: headers between rows and bytes, and the ICRC
over headers and payload as the data path computes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address

import numpy as np

from openmrc.core.jit import entry
from openmrc.core.rows import Table, table
from openmrc.wire.codec import Bytes, Words, as_matrix, decode, encode
from openmrc.wire.codes import Opcode
from openmrc.wire.icrc import PREFIX_WORDS, flow, is_intact, prefix, seal, trailer_length
from openmrc.wire.layout import Matrix
from openmrc.wire.packet import Packet

CALLS = 1_000_000
MTU = 4096  # bytes


@entry
def encode_many(packets: Matrix, out: Bytes, count: int) -> int:
    """Encode one packet over and over, each time with another PSN."""
    done = 0
    for number in range(count):
        packets[0, 2] = number & 0xFFFFFF
        done += encode(packets, 0, out, 0)
    return done


@entry
def decode_many(packets: Matrix, buffer: Bytes, length: int, count: int) -> int:
    """Decode one packet over and over, each time with another PSN."""
    failed = 0
    for number in range(count):
        buffer[11] = number & 0xFF
        failed += decode(buffer, 0, length, packets, 1)
    return failed


@entry
def seal_many(row: Bytes, known: Words, header: Bytes, length: int, payload: Bytes, count: int) -> int:
    """Compute the ICRC of an outgoing packet over and over, sixteen in a row from one port."""
    done = 0
    size = len(payload)
    for number in range(count):
        whole = length + size + trailer_length(size)
        crc = prefix(row, known, number >> 4 & 0xFFFF, whole, header.ctypes.data)
        done += seal(crc, header, 0, length, payload.ctypes.data, size, length)
    return done


@entry
def check_many(row: Bytes, known: Words, buffer: Bytes, length: int, count: int) -> int:
    """Check the ICRC of an arrived packet over and over."""
    intact = 0
    for number in range(count):
        crc = prefix(row, known, number >> 4 & 0xFFFF, length, buffer.ctypes.data)
        intact += is_intact(crc, buffer, 0, length)
    return intact


def best_ns(call: Callable[[int], int]) -> float:
    """Return the least CPU time of one call, in ns."""
    call(1)
    times = []
    for _ in range(5):
        begun = time.process_time()
        call(CALLS)
        times.append(time.process_time() - begun)
    return min(times) / CALLS * 1e9


def packet(opcode: Opcode, payload_length: int) -> Table[Packet]:
    """Return a packet with room for one that is decoded."""
    packets = table(Packet, 2)
    row = packets[0]
    row.opcode, row.payload_length, row.timestamped = opcode, payload_length, int(payload_length > 0)
    row.va, row.r_key, row.dma_length, row.sack_bitmap = -1, 0xDEADBEEF, 1 << 20, -1
    return packets


def main() -> None:
    """Measure and print."""
    for opcode, payload_length in ((Opcode.WRITE_MIDDLE, MTU), (Opcode.SACK, 0), (Opcode.ACKNOWLEDGE, 0)):
        packets = as_matrix(packet(opcode, payload_length))
        buffer = np.zeros(2 * MTU, np.uint8)
        header = encode(packets, 0, buffer, 0)
        whole = header + payload_length + 4
        out = best_ns(partial(encode_many, packets, buffer))
        back = best_ns(partial(decode_many, packets, buffer, whole))
        print(f"{opcode.name:<14} {header:>3} B of headers  encode {out:6.1f} ns  decode {back:6.1f} ns")
        row, payload = flow(ip_address("fd00::1"), ip_address("fd00::2")), np.zeros(payload_length, np.uint8)
        known = np.zeros(PREFIX_WORDS, np.int64)
        sealing = best_ns(partial(seal_many, row, known, buffer, header, payload))
        checking = best_ns(partial(check_many, row, known, buffer, whole))
        print(f"{'':<14} {payload_length:>4} B of payload  seal {sealing:7.1f} ns  check {checking:6.1f} ns")


if __name__ == "__main__":
    main()
