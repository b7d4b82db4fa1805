"""Encoding and decoding of packet rows for the data path.

The layout comes from `headers`; this module only names the fields that determine the layout of others. The columns of a
table of packets are accessed as a matrix: `as_matrix(packets)`.
"""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import kernel
from openmrc.core.rows import Table
from openmrc.wire.codes import MRC_OPCODE_GROUP, Opcode, Trim, WireStatus
from openmrc.wire.headers import BTH
from openmrc.wire.layout import BTH_LENGTH, COLUMN, ICRC_LENGTH, PROGRAMS, Matrix, place, read_headers, write_headers
from openmrc.wire.packet import Packet

Bytes = NDArray[np.uint8]
Words = NDArray[np.int64]

_OPCODE, _TIMESTAMPED = COLUMN["opcode"], COLUMN["timestamped"]
_PAYLOAD_LENGTH, _TRIMMED = COLUMN["payload_length"], COLUMN["trimmed"]
_IS_PROBE_ANSWER, _ACK_PSN_OFFSET = COLUMN["is_probe_answer"], COLUMN["ack_psn_offset"]
_FROM_BTH, _COLUMNS = COLUMN["solicited"], len(COLUMN)  # columns that only `decode` fills
_PAD_BYTE, _PAD_SHIFT, _PAD_MASK = place(BTH, "pad")
_TS_BYTE, _TS_SHIFT, _TS_MASK = place(BTH, "ts")
_VERSION_BYTE, _VERSION_SHIFT, _VERSION_MASK = place(BTH, "tver")
_UNKNOWN = 0  # the program of unknown opcodes: no steps, no length


def as_matrix(packets: Table[Packet]) -> Matrix:
    array = cast("Matrix", packets)
    return np.asarray(array).view(np.int64).reshape(len(array), -1)


@kernel
def _program(packets: Matrix, index: int) -> int:
    row = packets[index]
    if row[_OPCODE] >> 5 != MRC_OPCODE_GROUP:
        return _UNKNOWN
    return int((row[_OPCODE] & 31) * 2 + (row[_TIMESTAMPED] & 1))


@kernel
def header_length(packets: Matrix, index: int) -> int:
    """Return the length of all headers from BTH on, which is the offset of the payload; 0: unknown opcode."""
    return int(PROGRAMS[_program(packets, index), 1])


@kernel
def datagram_length(packets: Matrix, index: int) -> int:
    """Return the length of the UDP payload: headers, payload, pad and ICRC."""
    payload = int(packets[index, _PAYLOAD_LENGTH])
    return header_length(packets, index) + payload + (-payload & 3) + ICRC_LENGTH


@kernel
def encode(packets: Matrix, index: int, out: Bytes, at: int) -> int:
    """Write the headers of a packet at `out[at:]` and return their length; 0: unknown opcode.

    `out` must have room for `layout.LONGEST_HEADER` bytes.
    """
    row = packets[index]
    program = PROGRAMS[_program(packets, index)]
    if program[1]:
        write_headers(program[0], out.ctypes.data + at, row)
    if program[3]:
        out[at + _PAD_BYTE] |= (-row[_PAYLOAD_LENGTH] & _PAD_MASK) << _PAD_SHIFT
    return int(program[1])


@kernel
def decode(buffer: Bytes, at: int, length: int, packets: Matrix, index: int) -> int:
    """Decode a UDP payload of `length` bytes, BTH to ICRC, into a packet row; return a WireStatus.

    The caller sets the column `trimmed` from the DSCP; payload and ICRC may then be missing and `payload_length` is 0.
    Columns of absent headers become 0. The ICRC is not verified (see `icrc`). Never reads outside
    `buffer[at : at + length]`. On a status other than OK the row is unchanged.
    """
    if length < BTH_LENGTH:
        return WireStatus.TRUNCATED.value
    opcode = _byte(buffer, at)
    if opcode >> 5 != MRC_OPCODE_GROUP:
        return WireStatus.NOT_MRC.value
    program = PROGRAMS[(opcode & 31) * 2 + (_byte(buffer, at + _TS_BYTE) >> _TS_SHIFT & _TS_MASK)]
    if program[1] == 0:
        return WireStatus.UNKNOWN_OPCODE.value
    if _byte(buffer, at + _VERSION_BYTE) >> _VERSION_SHIFT & _VERSION_MASK:
        return WireStatus.BAD_VERSION.value
    if packets[index, _TRIMMED] != Trim.WHOLE:
        if length < program[2]:
            return WireStatus.TRUNCATED.value
        _read(program[0], buffer.ctypes.data + at, length, packets[index])
        packets[index, _PAYLOAD_LENGTH] = 0
        return WireStatus.OK.value
    pad = _byte(buffer, at + _PAD_BYTE) >> _PAD_SHIFT & _PAD_MASK
    payload = length - program[1] - pad - ICRC_LENGTH
    status = check_length(length, program[1], pad, program[3])
    if status == WireStatus.OK:
        _read(program[0], buffer.ctypes.data + at, length, packets[index])
        packets[index, _PAYLOAD_LENGTH] = payload
    return status


@kernel
def check_length(length: int, header: int, pad: int, may_have_payload: int) -> int:
    """Return whether these headers and this pad fit a whole packet of `length` bytes, ICRC included."""
    rest = length - header - ICRC_LENGTH
    if rest < 0:
        return WireStatus.TRUNCATED.value
    if rest & 3 or (rest and not may_have_payload):
        return WireStatus.BAD_LENGTH.value
    return WireStatus.BAD_PAD.value if pad > rest else WireStatus.OK.value


@kernel
def _read(kind: int, bth: int, length: int, row: Words) -> None:
    for column in range(_FROM_BTH, _COLUMNS):
        row[column] = 0
    read_headers(kind, bth, length, row)
    if row[_OPCODE] == Opcode.SACK and row[_IS_PROBE_ANSWER]:
        row[_ACK_PSN_OFFSET] &= 0xFFFF  # then it is a probe_id, which is unsigned


@kernel
def _byte(buffer: Bytes, at: int) -> int:
    return np.int64(buffer[at])  # type: ignore[return-value]  # int() of an unsigned number stays unsigned when compiled
