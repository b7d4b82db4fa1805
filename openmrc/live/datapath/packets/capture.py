"""Packets for a capture file, written as pcapng blocks into a ring; a Python thread writes the ring to the file.

When the ring fills up, the event loop waits for the file: a complete capture comes before speed. A file that takes
nothing for `PATIENCE` is no longer waited for; packets that do not fit are then counted as lost.
"""

from openmrc.core.jit import entry, kernel, rare_kernel
from openmrc.core.memory import field_address, load_acquire, store_release
from openmrc.core.rows import offset_of
from openmrc.engine.state.tables import Engine
from openmrc.live.datapath import handles
from openmrc.live.datapath.libc import copy, wait_for
from openmrc.live.datapath.rows import CAPTURE_SLACK, FRAME, OUT, CaptureRing, DataPath
from openmrc.units import PS_PER_MS, PS_PER_NS, PS_PER_S
from openmrc.wire.codec import Bytes
from openmrc.wire.entropy import flow_label
from openmrc.wire.ip import IPV4_LENGTH, IPV6_LENGTH, UDP_LENGTH
from openmrc.wire.pcapng import ENHANCED

NO_ROOM = -1
RING = 64 << 20  # bytes
WORTH = RING // 16  # bytes after which the file is written
RESERVE = 4 << 20  # bytes that one iteration may need besides its arrivals ...
RESERVE_OF_PLANE = 2 << 20  # ... and those of one plane: 16 datagrams of 64 KiB, and their headers
PATIENCE = 5 * PS_PER_S  # without progress of the file
PAUSE = PS_PER_MS
_HEAD, _TAIL = offset_of(CaptureRing, "head"), offset_of(CaptureRing, "tail")
BLOCK_HEADER, BLOCK_TRAILER = 28, 4  # bytes of an enhanced packet block (pcapng, section 4.3)


@rare_kernel
def outgoing(engine: Engine, datapath: DataPath, begin: int, headers: int, end: int, tail: int, port: int) -> None:
    """Capture a packet that is about to leave: headers from `begin` of the arena, payload, pad and ICRC from `end`."""
    out = engine.packets[OUT]
    length = headers + out.payload_length + tail
    flow = 2 * (out.destination * datapath.nic[0].planes + out.port)
    tos = datapath.traffic[out.traffic_class, 0]
    at = _begin(datapath, flow, out.port, port, out.entropy, tos, length)
    if at == NO_ROOM:
        return
    memory = datapath.captured.ctypes.data + at
    copy(memory, datapath.headers.ctypes.data + begin, headers)
    if out.payload_length > 0:
        copy(memory + headers, out.payload, out.payload_length)
    copy(memory + headers + out.payload_length, datapath.headers.ctypes.data + end, tail)
    _end(datapath, at + length)


@rare_kernel
def arrived(datapath: DataPath, train: int, begin: int, length: int) -> None:
    """Capture a packet that arrived, as the engine will see it."""
    row = datapath.trains[train]
    flow = 2 * (row.peer * datapath.nic[0].planes + row.plane) + 1
    at = _begin(datapath, flow, row.plane, row.port, row.entropy, row.tos, length)
    if at != NO_ROOM:
        copy(datapath.captured.ctypes.data + at, datapath.staging.ctypes.data + begin, length)
        _end(datapath, at + length)


@entry
def captured(at: int) -> int:
    """Return how many bytes of blocks the ring has had, ever; the caller may read them."""
    return load_acquire(field_address(handles.datapath_at(at).capture, 0, _TAIL))


@entry
def note_written(at: int, head: int) -> int:
    """Let the event loop write over what lies before `head`, which the caller has read; return that."""
    store_release(field_address(handles.datapath_at(at).capture, 0, _HEAD), head)
    return head


@rare_kernel
def must_wait(datapath: DataPath) -> bool:
    """Pause and return True while the ring may not hold what one iteration captures, unless the file is stuck."""
    nic = datapath.nic[0]
    ring = datapath.capture[0]
    free = RING - (ring.tail - load_acquire(field_address(datapath.capture, 0, _HEAD)))
    if ring.closed or free >= RESERVE + nic.planes * RESERVE_OF_PLANE:
        ring.waits_at = -1
        return False
    if ring.waits_at != ring.head:
        ring.waits_at = ring.head
        ring.waits_since = nic.now
    if nic.now - ring.waits_since > PATIENCE:
        return False
    datapath.clock[0, 0] = 0
    datapath.clock[0, 1] = PAUSE // PS_PER_NS
    wait_for(0, 0, datapath.clock.ctypes.data, 0)
    return True


@kernel
def _begin(datapath: DataPath, flow: int, plane: int, port: int, entropy: int, tos: int, length: int) -> int:
    """Write all of a block but the UDP payload; return where that goes, or NO_ROOM."""
    nic = datapath.nic[0]
    ring = datapath.capture[0]
    ip = IPV6_LENGTH if datapath.frame_headers[flow, 0] >> 4 == 6 else IPV4_LENGTH
    frame = ip + UDP_LENGTH + length
    block = BLOCK_HEADER + (frame + 3 & ~3) + BLOCK_TRAILER
    head = load_acquire(field_address(datapath.capture, 0, _HEAD))
    if ring.closed or length > FRAME or ring.tail - head + block > RING:
        ring.lost += 1
        return NO_ROOM
    at = int(ring.tail % RING)
    time = ring.clock + nic.now // PS_PER_NS
    _put_little(datapath.captured, at, ENHANCED)
    _put_little(datapath.captured, at + 4, block)
    _put_little(datapath.captured, at + 8, plane)
    _put_little(datapath.captured, at + 12, time >> 32)
    _put_little(datapath.captured, at + 16, time)
    _put_little(datapath.captured, at + 20, frame)
    _put_little(datapath.captured, at + 24, frame)
    _put_little(datapath.captured, at + block - 8, 0)  # the padding, before the payload covers what is not padding
    _put_little(datapath.captured, at + block - 4, block)
    _write_headers(datapath, at + BLOCK_HEADER, flow, ip, port, flow_label(nic.placement, entropy), tos, length)
    return at + BLOCK_HEADER + ip + UDP_LENGTH


@kernel
def _write_headers(
    datapath: DataPath, at: int, flow: int, ip: int, port: int, label: int, tos: int, length: int
) -> None:
    """Write the flow's IP and UDP headers, and into them what differs from packet to packet."""
    frame = datapath.captured
    base = datapath.frame_headers.ctypes.data + flow * datapath.frame_headers.shape[1]
    copy(frame.ctypes.data + at, base, ip + UDP_LENGTH)
    udp = UDP_LENGTH + length
    if ip == IPV4_LENGTH:
        frame[at + 1] = tos
        _put_big(frame, at + 2, ip + udp)
        _put_big(frame, at + 10, 0)
        _put_big(frame, at + 10, _checksum(frame, at, ip))
    else:
        frame[at] = 6 << 4 | tos >> 4
        frame[at + 1] = (tos & 15) << 4 | label >> 16
        _put_big(frame, at + 2, label)
        _put_big(frame, at + 4, udp)
    _put_big(frame, at + ip, port)
    _put_big(frame, at + ip + 4, udp)


@kernel
def _end(datapath: DataPath, end: int) -> None:
    """Add the block whose payload ends at `end` to the ring, and wrap around what lies behind the ring."""
    ring = datapath.capture[0]
    begin = int(ring.tail % RING)
    block = (end - begin + 3 & ~3) + BLOCK_TRAILER
    over = begin + block - RING
    if over > 0:
        memory = datapath.captured.ctypes.data
        copy(memory, memory + RING, over)
    ring.packets += 1
    store_release(field_address(datapath.capture, 0, _TAIL), ring.tail + block)


@kernel
def _checksum(data: Bytes, at: int, length: int) -> int:
    """Return the Internet checksum of an IPv4 header (RFC 1071)."""
    total = 0
    for index in range(at, at + length, 2):
        total += int(data[index]) << 8 | int(data[index + 1])
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16) ^ 0xFFFF


@kernel
def _put_big(data: Bytes, at: int, value: int) -> None:
    data[at] = value >> 8 & 0xFF
    data[at + 1] = value & 0xFF


@kernel
def _put_little(data: Bytes, at: int, value: int) -> None:
    for index in range(4):
        data[at + index] = value >> 8 * index & 0xFF


ENTRIES = (captured, note_written)
assert CAPTURE_SLACK >= BLOCK_HEADER + IPV6_LENGTH + UDP_LENGTH + FRAME + 3 + BLOCK_TRAILER
