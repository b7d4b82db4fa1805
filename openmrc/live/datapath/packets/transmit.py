"""From the engine's packets to sendmmsg: headers are written into an arena, long payload is gathered where it lies.

Packets that follow each other on one entropy value go as one message that the kernel cuts
(UDP_SEGMENT), so all but the last must be equally long. One call of sendmmsg carries the messages of
one socket, so a change of entropy value ends a batch.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.memory import prefetch
from openmrc.core.rows import CACHE_LINE
from openmrc.engine.endpoint import next_packet, put_data_first
from openmrc.engine.state.tables import Engine
from openmrc.live.datapath.libc import (
    BOTH_CONTROLS,
    EAGAIN,
    MESSAGE_BYTES,
    MSG_DONTWAIT,
    ONE_CONTROL,
    POLL_BYTES,
    POLLOUT,
    VECTOR_BYTES,
    copy,
    last_error,
    monotonic,
    send_messages,
    wait_for,
)
from openmrc.live.datapath.packets import capture, pacing
from openmrc.live.datapath.rows import (
    BATCH,
    INLINE,
    MESSAGES,
    NAME_BYTES,
    NO_SENDER,
    OUT,
    TRAIN,
    DataPath,
)
from openmrc.wire import codec, icrc

_STALL_TRIES = 3
_STALL_NS = 500_000  # how long each try waits for room in a socket


@kernel
def send_waiting(engine: Engine, datapath: DataPath, limit: int, data_ahead: int) -> int:
    """Send what the engine has, at most about `limit` packets, the first `data_ahead` of them data if there is some.

    Return how many went.
    """
    nic = datapath.nic[0]
    batch = datapath.assembly[0]
    count = 0
    put_data_first(engine, nic.endpoint, data_ahead)
    batch.sender = NO_SENDER
    while count < limit and next_packet(engine, nic.now, nic.endpoint, pacing.open_planes(datapath), OUT) == 1:
        _append(engine, datapath)
        count += 1
    _flush(datapath)
    return count


@kernel
def _append(engine: Engine, datapath: DataPath) -> None:
    nic = datapath.nic[0]
    batch = datapath.assembly[0]
    out = engine.packets[OUT]
    sender = int(datapath.sender_of[out.port, out.entropy & 0xFFFF])
    remote = out.destination * nic.planes + out.port
    if remote < 0 or datapath.peers[remote].name_length == 0:
        datapath.planes[out.port].send_errors += 1
        return
    if sender != batch.sender or batch.packets >= BATCH:
        _flush(datapath)
        batch.sender = sender
    length = codec.datagram_length(datapath.matrix, OUT)
    tos = datapath.traffic[out.traffic_class, 0]
    if not _fits(datapath, remote, tos, length):
        if batch.messages == MESSAGES:
            _flush(datapath)
        _begin_message(datapath, remote, tos, length)
    _add_packet(engine, datapath, sender, remote, length)
    pacing.on_sent(datapath, out.port, length)


@kernel
def _fits(datapath: DataPath, remote: int, tos: int, length: int) -> bool:
    """Whether the packet may follow in the current message."""
    nic = datapath.nic[0]
    batch = datapath.assembly[0]
    return (
        batch.messages > 0
        and nic.segmentation
        and not batch.closed
        and remote == batch.remote
        and tos == batch.tos
        and length <= batch.segment
        and batch.train < TRAIN
        and batch.total + length <= nic.train_bytes
    )


@kernel
def _begin_message(datapath: DataPath, remote: int, tos: int, length: int) -> None:
    nic = datapath.nic[0]
    batch = datapath.assembly[0]
    index = batch.messages
    message = datapath.messages[index]
    message.name = nic.names_at + (remote * nic.evs + batch.sender % nic.evs) * NAME_BYTES
    message.name_length = datapath.peers[remote].name_length
    message.vectors = nic.vectors_at + batch.vectors * VECTOR_BYTES
    message.vector_count = 0
    message.control_length = ONE_CONTROL
    datapath.controls[index].tos = tos
    datapath.controls[index].segment = length
    batch.messages += 1
    batch.remote = remote
    batch.tos = tos
    batch.segment = length
    batch.total = 0
    batch.train = 0
    batch.closed = False
    batch.contiguous = False


@kernel
def _add_packet(engine: Engine, datapath: DataPath, sender: int, remote: int, length: int) -> None:
    batch = datapath.assembly[0]
    ring = datapath.capture[0]
    out = engine.packets[OUT]
    begin = batch.cursor
    headers = codec.encode(datapath.matrix, OUT, datapath.headers, begin)
    payload = _inline(engine, datapath, begin + headers)
    end = begin + headers + (out.payload_length if payload != out.payload else 0)
    port = datapath.senders[sender].port
    whole = headers + out.payload_length + icrc.trailer_length(out.payload_length)
    flow = 2 * remote
    bth = datapath.headers.ctypes.data + begin
    crc = icrc.prefix(datapath.flows[flow], datapath.prefixes[flow], port, whole, bth)
    _prefetch(out.payload + out.payload_length, out.payload_length)
    tail = icrc.seal(crc, datapath.headers, begin, headers, payload, out.payload_length, end)
    if ring.is_on:
        capture.outgoing(engine, datapath, begin, headers, end, tail, port)
    _gather(datapath, begin, end, tail, payload, out.payload_length if payload == out.payload else 0)
    batch.packets += 1
    batch.train += 1
    batch.total += length
    if batch.train == 2:
        datapath.messages[batch.messages - 1].control_length = BOTH_CONTROLS
    if length < batch.segment:
        batch.closed = True


@kernel
def _inline(engine: Engine, datapath: DataPath, at: int) -> int:
    """Return the address of the payload: a short one is copied into the arena first, to `at`."""
    out = engine.packets[OUT]
    if out.payload_length == 0 or out.payload_length > INLINE:
        return int(out.payload)
    copied = datapath.headers.ctypes.data + at
    copy(copied, out.payload, out.payload_length)
    return copied


@kernel
def _gather(datapath: DataPath, begin: int, end: int, tail: int, payload: int, payload_length: int) -> None:
    """Append a packet to the message: arena from `begin`, payload that lies elsewhere, arena of `tail` from `end`."""
    batch = datapath.assembly[0]
    arena = datapath.headers.ctypes.data
    if payload_length > 0:
        _add_vector(datapath, arena + begin, end - begin)
        batch.contiguous = False
        _add_vector(datapath, payload, payload_length)
        batch.contiguous = False
        begin = end
    _add_vector(datapath, arena + begin, end + tail - begin)
    batch.contiguous = True
    batch.cursor = end + tail


@kernel
def _prefetch(payload: int, length: int) -> None:
    """Prefetch the probable payload of the next packet; processors do not look beyond a page by themselves."""
    for at in range(0, length, CACHE_LINE):
        prefetch(payload + at)


@kernel
def _add_vector(datapath: DataPath, base: int, length: int) -> None:
    """Append memory to the current message; what follows the last piece directly makes it longer."""
    batch = datapath.assembly[0]
    if batch.contiguous:
        datapath.vectors[batch.vectors - 1].length += length
        return
    vector = datapath.vectors[batch.vectors]
    vector.base = base
    vector.length = length
    batch.vectors += 1
    datapath.messages[batch.messages - 1].vector_count += 1


@rare_kernel
def _flush(datapath: DataPath) -> None:
    """Hand the messages to the kernel; what it does not take after a short wait counts as lost on the way."""
    nic = datapath.nic[0]
    batch = datapath.assembly[0]
    if batch.messages > 0:
        sender = datapath.senders[batch.sender]
        plane = datapath.planes[sender.plane]
        done = 0
        tries = 0
        while done < batch.messages:
            nic.sendings += 1
            went = send_messages(
                sender.descriptor,
                nic.messages_at + done * MESSAGE_BYTES,
                batch.messages - done,
                MSG_DONTWAIT,
            )
            if went > 0:
                done += went
                continue
            error = last_error(datapath.clock[0])
            plane.last_error = error
            if error == EAGAIN and tries < _STALL_TRIES:
                tries += 1
                plane.stalls += 1
                _await_room(datapath, sender.descriptor)
            else:
                plane.send_errors += 1
                done += 1
        nic.now = monotonic(datapath.clock[0], nic.epoch)
    forget(datapath)


@kernel
def forget(datapath: DataPath) -> None:
    """Forget the messages that were gathered: they were sent, or count as lost on the way."""
    batch = datapath.assembly[0]
    batch.messages = 0
    batch.packets = 0
    batch.vectors = 0
    batch.cursor = 0
    batch.contiguous = False


@kernel
def _await_room(datapath: DataPath, descriptor: int) -> None:
    last = len(datapath.poll) - 1
    slot = datapath.poll[last]
    slot.descriptor = descriptor
    slot.events = POLLOUT
    datapath.clock[0, 0] = 0
    datapath.clock[0, 1] = _STALL_NS
    wait_for(datapath.nic[0].poll_at + last * POLL_BYTES, 1, datapath.clock.ctypes.data, 0)
