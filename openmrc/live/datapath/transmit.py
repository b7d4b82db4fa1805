"""From the engine's packets to sendmmsg: headers are written into an arena, payload is gathered where it lies.

Packets that follow each other on one entropy value go as one message that the kernel cuts
(UDP_SEGMENT), so all but the last must be equally long. One call of sendmmsg carries the messages of
one socket, so a change of entropy value ends a batch.
"""

from __future__ import annotations

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.endpoint import next_packet
from openmrc.engine.tables import Engine
from openmrc.live.datapath import capture
from openmrc.live.datapath.libc import (
    BOTH_CONTROLS,
    EAGAIN,
    MESSAGE_BYTES,
    MSG_DONTWAIT,
    ONE_CONTROL,
    POLL_BYTES,
    POLLOUT,
    VECTOR_BYTES,
    last_error,
    monotonic,
    send_messages,
    wait_for,
)
from openmrc.live.datapath.tables import BATCH, MESSAGES, NAME_BYTES, NO_SENDER, OUT, TRAIN, Wires
from openmrc.wire import codec, icrc

ALL_PORTS = -1
_STALL_TRIES = 3
_STALL_NS = 500_000  # how long each try waits for room in a socket


@kernel
def send_waiting(engine: Engine, wires: Wires, limit: int) -> int:
    """Send what the engine has, at most about `limit` packets; return how many went."""
    nic = wires.nic[0]
    count = 0
    nic.sender = NO_SENDER
    while count < limit and next_packet(engine, nic.now, nic.endpoint, ALL_PORTS, OUT) == 1:
        _append(engine, wires)
        count += 1
    _flush(wires)
    return count


@kernel
def _append(engine: Engine, wires: Wires) -> None:
    nic = wires.nic[0]
    out = engine.packets[OUT]
    sender = int(wires.sender_of[out.port, out.entropy & 0xFFFF])
    remote = out.destination * nic.planes + out.port
    if remote < 0 or wires.remotes[remote].name_length == 0:
        wires.planes[out.port].send_errors += 1
        return
    if sender != nic.sender or nic.packets >= BATCH:
        _flush(wires)
        nic.sender = sender
    length = codec.datagram_length(wires.matrix, OUT)
    tos = wires.traffic[out.traffic_class, 0]
    if not _fits(wires, remote, tos, length):
        if nic.messages == MESSAGES:
            _flush(wires)
        _begin_message(wires, remote, tos, length)
    _add_packet(engine, wires, sender, remote, length)


@kernel
def _fits(wires: Wires, remote: int, tos: int, length: int) -> bool:
    """Whether the packet may follow in the current message."""
    nic = wires.nic[0]
    return (
        nic.messages > 0
        and nic.segmentation == 1
        and nic.closed == 0
        and remote == nic.remote
        and tos == nic.tos
        and length <= nic.segment
        and nic.train < TRAIN
        and nic.total + length <= nic.train_bytes
    )


@kernel
def _begin_message(wires: Wires, remote: int, tos: int, length: int) -> None:
    nic = wires.nic[0]
    index = nic.messages
    message = wires.messages[index]
    message.name = nic.names_at + (remote * nic.evs + nic.sender % nic.evs) * NAME_BYTES
    message.name_length = wires.remotes[remote].name_length
    message.vectors = nic.vectors_at + nic.vectors * VECTOR_BYTES
    message.vector_count = 0
    message.control_length = ONE_CONTROL
    wires.controls[index].tos = tos
    wires.controls[index].segment = length
    nic.messages += 1
    nic.remote = remote
    nic.tos = tos
    nic.segment = length
    nic.total = 0
    nic.train = 0
    nic.closed = 0
    nic.contiguous = 0


@kernel
def _add_packet(engine: Engine, wires: Wires, sender: int, remote: int, length: int) -> None:
    nic = wires.nic[0]
    out = engine.packets[OUT]
    begin = nic.cursor
    headers = codec.encode(wires.matrix, OUT, wires.headers, begin)
    end = begin + headers
    flow = 2 * remote
    whole = headers + out.payload_length + icrc.trailer_length(out.payload_length)
    arena = wires.headers.ctypes.data
    crc = icrc.prefix(wires.flows[flow], wires.prefixes[flow], wires.senders[sender].port, whole, arena + begin)
    tail = icrc.seal(crc, wires.headers, begin, headers, out.payload, out.payload_length, end)
    if nic.capturing == 1:
        capture.outgoing(engine, wires, begin, headers, tail, wires.senders[sender].port)
    if out.payload_length > 0:
        _add_vector(wires, arena + begin, headers)
        nic.contiguous = 0
        _add_vector(wires, out.payload, out.payload_length)
        nic.contiguous = 0
        _add_vector(wires, arena + end, tail)
    else:
        _add_vector(wires, arena + begin, headers + tail)
    nic.contiguous = 1
    nic.cursor = end + tail
    nic.packets += 1
    nic.train += 1
    nic.total += length
    if nic.train == 2:
        wires.messages[nic.messages - 1].control_length = BOTH_CONTROLS
    if length < nic.segment:
        nic.closed = 1


@kernel
def _add_vector(wires: Wires, base: int, length: int) -> None:
    """Append memory to the current message; what follows the last piece directly makes it longer."""
    nic = wires.nic[0]
    if nic.contiguous == 1:
        wires.vectors[nic.vectors - 1].length += length
        return
    vector = wires.vectors[nic.vectors]
    vector.base = base
    vector.length = length
    nic.vectors += 1
    wires.messages[nic.messages - 1].vector_count += 1


@rare_kernel
def _flush(wires: Wires) -> None:
    """Hand the messages to the kernel; what it does not take after a short wait counts as lost on the way."""
    nic = wires.nic[0]
    if nic.messages > 0:
        sender = wires.senders[nic.sender]
        plane = wires.planes[sender.plane]
        done = 0
        tries = 0
        while done < nic.messages:
            went = send_messages(
                sender.descriptor,
                nic.messages_at + done * MESSAGE_BYTES,
                nic.messages - done,
                MSG_DONTWAIT,
            )
            if went > 0:
                done += went
                continue
            error = last_error(wires.clock[0])
            plane.last_error = error
            if error == EAGAIN and tries < _STALL_TRIES:
                tries += 1
                plane.stalls += 1
                _await_room(wires, sender.descriptor)
            else:
                plane.send_errors += 1
                done += 1
        nic.now = monotonic(wires.clock[0])
    nic.messages = 0
    nic.packets = 0
    nic.vectors = 0
    nic.cursor = 0
    nic.contiguous = 0


@kernel
def _await_room(wires: Wires, descriptor: int) -> None:
    last = len(wires.poll) - 1
    slot = wires.poll[last]
    slot.descriptor = descriptor
    slot.events = POLLOUT
    wires.clock[0, 0] = 0
    wires.clock[0, 1] = _STALL_NS
    wait_for(wires.nic[0].poll_at + last * POLL_BYTES, 1, wires.clock.ctypes.data, 0)
