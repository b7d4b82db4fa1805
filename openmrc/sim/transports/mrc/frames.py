"""An MRC packet in flight: one cache line instead of the forty columns of `wire.packet.Packet`.

Opcodes share columns. Fields that the network reads or changes (entropy, plane, marks, trimming) are in `tables.Hop`.
"""

from openmrc.core.jit import kernel
from openmrc.core.rows import Int, Int16, Int32, Table
from openmrc.wire.codes import Opcode
from openmrc.wire.packet import Packet


class MrcFrame:
    """Content of an MRC packet; columns by opcode: write | SACK | NACK, ACK, probe, endpoint operation."""

    wide: Int  # va | sack_bitmap
    key: Int  # r_key | reflected_entropy | reflected_entropy
    dest_qpn: Int32
    psn: Int32
    a: Int32  # dma_length | cack_psn | nack_psn, acked_messages, probe_id, port_status_mask
    b: Int32  # immediate | rcvd_bytes
    c: Int32  # payload_length | ooo_count
    d: Int32  # msn, rqmsn | ack_psn_offset
    tx_timestamp: Int32
    e: Int32  # | sack_offset | nack_reason, syndrome, endpoint_op
    mpr: Int32
    penalty: Int32
    opcode: Int16
    flags: Int16


@kernel
def pack(packets: Table[Packet], frames: Table[MrcFrame], packet: int, frame: int) -> None:
    out = packets[packet]
    row = frames[frame]
    row.opcode = out.opcode
    row.dest_qpn = out.dest_qpn
    row.psn = out.psn
    row.tx_timestamp = out.tx_timestamp
    row.flags = out.solicited | out.ack_request << 1 | out.retransmitted << 2 | out.timestamped << 3
    row.flags |= out.timestamp_unit << 4
    if out.opcode <= Opcode.WRITE_ONLY_IMM:
        row.wide = out.va
        row.key = out.r_key
        row.a = out.dma_length
        row.b = out.immediate
        row.c = out.payload_length
        row.d = out.msn | (out.rqmsn & 0x7FFF) << 16  # fewer than 2**15 writes with immediate are out at once
    elif out.opcode == Opcode.SACK:
        _pack_sack(packets, frames, packet, frame)
    else:
        _pack_other(packets, frames, packet, frame)


@kernel
def unpack(frames: Table[MrcFrame], packets: Table[Packet], frame: int, packet: int) -> None:
    row = frames[frame]
    out = packets[packet]
    flags = row.flags
    out.opcode = row.opcode
    out.dest_qpn = row.dest_qpn
    out.psn = row.psn
    out.tx_timestamp = row.tx_timestamp
    out.solicited = flags & 1
    out.ack_request = (flags >> 1) & 1
    out.retransmitted = (flags >> 2) & 1
    out.timestamped = (flags >> 3) & 1
    out.timestamp_unit = (flags >> 4) & 1
    out.payload_length = 0
    if row.opcode <= Opcode.WRITE_ONLY_IMM:
        out.va = row.wide
        out.r_key = row.key
        out.dma_length = row.a
        out.immediate = row.b
        out.payload_length = row.c
        out.msn = row.d & 0xFFFF
        out.rqmsn = row.d >> 16
    elif row.opcode == Opcode.SACK:
        _unpack_sack(frames, packets, frame, packet)
    else:
        _unpack_other(frames, packets, frame, packet)


@kernel
def _pack_sack(packets: Table[Packet], frames: Table[MrcFrame], packet: int, frame: int) -> None:
    out = packets[packet]
    row = frames[frame]
    row.wide = out.sack_bitmap
    row.key = out.reflected_entropy
    row.a = out.cack_psn
    row.b = out.rcvd_bytes
    row.c = out.ooo_count
    row.d = out.ack_psn_offset
    row.e = out.sack_offset
    row.mpr = out.mpr
    row.penalty = out.rcv_cwnd_pen
    row.flags |= out.path_mark << 5 | out.is_probe_answer << 7 | out.restore_cwnd << 8


@kernel
def _unpack_sack(frames: Table[MrcFrame], packets: Table[Packet], frame: int, packet: int) -> None:
    row = frames[frame]
    out = packets[packet]
    out.sack_bitmap = row.wide
    out.reflected_entropy = row.key
    out.cack_psn = row.a
    out.rcvd_bytes = row.b
    out.ooo_count = row.c
    out.ack_psn_offset = row.d
    out.sack_offset = row.e
    out.mpr = row.mpr
    out.rcv_cwnd_pen = row.penalty
    out.path_mark = (row.flags >> 5) & 3
    out.is_probe_answer = (row.flags >> 7) & 1
    out.restore_cwnd = (row.flags >> 8) & 1
    out.cc_type = 0


@kernel
def _pack_other(packets: Table[Packet], frames: Table[MrcFrame], packet: int, frame: int) -> None:
    out = packets[packet]
    row = frames[frame]
    match out.opcode:
        case Opcode.NACK:
            row.key = out.reflected_entropy
            row.a = out.nack_psn
            row.e = out.nack_reason
        case Opcode.ACKNOWLEDGE:
            row.a = out.acked_messages
            row.e = out.syndrome
        case Opcode.PROBE:
            row.a = out.probe_id
        case _:
            row.a = out.port_status_mask
            row.e = out.endpoint_op


@kernel
def _unpack_other(frames: Table[MrcFrame], packets: Table[Packet], frame: int, packet: int) -> None:
    row = frames[frame]
    out = packets[packet]
    match row.opcode:
        case Opcode.NACK:
            out.reflected_entropy = row.key
            out.nack_psn = row.a
            out.nack_reason = row.e
        case Opcode.ACKNOWLEDGE:
            out.acked_messages = row.a
            out.syndrome = row.e
        case Opcode.PROBE:
            out.probe_id = row.a
        case _:
            out.port_status_mask = row.a
            out.endpoint_op = row.e
