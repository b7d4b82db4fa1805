"""From recvmmsg to the engine: cut trains into packets, check each, hand it over, place its payload.

UDP_GRO hands over several packets of one sender in one piece, with the size of all but the last.
The source address and port say who sent it and on which entropy value; the type of service says
whether a switch marked or trimmed it.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.memory import fence, prefetch, stream_line
from openmrc.core.rows import CACHE_LINE
from openmrc.core.serial import PSN_BITS, distance
from openmrc.engine.endpoint import receive
from openmrc.engine.state.queue_pairs import by_qpn, receives_data, tracked_psns
from openmrc.engine.state.tables import NONE, Engine
from openmrc.live.datapath.libc import (
    IP_TOS,
    IPPROTO_IP,
    IPPROTO_IPV6,
    IPV6_FLOWINFO,
    IPV6_TCLASS,
    MSG_DONTWAIT,
    SO_RXQ_OVFL,
    SOL_SOCKET,
    SOL_UDP,
    UDP_GRO,
    copy,
    receive_messages,
)
from openmrc.live.datapath.packets import capture, impair
from openmrc.live.datapath.rows import ARRIVALS, CONTROL_WORDS, DATAGRAM, IN, NAME_BYTES, DataPath
from openmrc.live.datapath.sources import ANY_PORT, find_source
from openmrc.wire import codec, icrc
from openmrc.wire.codes import CONGESTED, Opcode, Trim, WireStatus
from openmrc.wire.entropy import entropy
from openmrc.wire.packet import NOWHERE

_GRO = SOL_UDP | UDP_GRO << 32
_TOS = IPPROTO_IP | IP_TOS << 32
_TCLASS = IPPROTO_IPV6 | IPV6_TCLASS << 32
_FLOW = IPPROTO_IPV6 | IPV6_FLOWINFO << 32
_DROPS = SOL_SOCKET | SO_RXQ_OVFL << 32
_CONTROL_HEADER = 16  # bytes of a struct cmsghdr
_INET = 2
AHEAD = 12  # lines of the next packet that are asked for early
BULK = 16_384  # mean bytes of datagrams from which on few are taken in one call
FEW = 4  # of those: they stay in the nearest cache until they are placed
STREAMED = 2048  # bytes of payload from which on it is placed past the caches


@kernel
def take(datapath: DataPath, plane: int) -> bool:
    """Receive what one plane's socket has; return whether there may be more."""
    nic = datapath.nic[0]
    row = datapath.planes[plane]
    most = FEW if row.bulk else ARRIVALS
    for index in range(most):
        arrival = datapath.arrivals[index]
        arrival.name_length = NAME_BYTES
        arrival.control_length = CONTROL_WORDS * 8
        arrival.flags = 0
        arrival.length = 0
    count = receive_messages(row.descriptor, nic.arrivals_at, most, MSG_DONTWAIT, 0)
    length = 0
    for index in range(count):
        length += datapath.arrivals[index].length
        _on_datagram(datapath, plane, index)
    row.bulk = length >= BULK * count and count > 0
    return bool(count == most)


@kernel
def _on_datagram(datapath: DataPath, plane: int, index: int) -> None:
    row = datapath.planes[plane]
    arrival = datapath.arrivals[index]
    length = arrival.length
    segment = length
    tos = 0
    label = 0
    words = datapath.arrival_controls[index]
    at = 0
    end = min(arrival.control_length // 8, CONTROL_WORDS)
    while at + 2 < end + 1 and words[at] >= _CONTROL_HEADER:
        kind = words[at + 1]
        if kind == _GRO:
            segment = words[at + 2] & 0xFFFFFFFF
        elif kind in (_TOS, _TCLASS):
            tos = words[at + 2] & 0xFF
        elif kind == _FLOW:
            label = (words[at + 2] >> 24 & 0xFF) | (words[at + 2] >> 8 & 0xFF00)  # network order; the low 16 bits
        elif kind == _DROPS:
            row.kernel_drops = words[at + 2] & 0xFFFFFFFF
        at += (words[at] + 7) // 8
    name = datapath.arrival_names[index]
    port = (name[0] >> 24 & 0xFF) | (name[0] >> 8 & 0xFF00)
    peer = _who(datapath, plane, name[0], name[1], name[2], port)
    if peer == NONE or segment <= 0 or length <= 0:
        datapath.nic[0].unknown_source += 1
        row.refused += 1
        return
    nic = datapath.nic[0]
    train = datapath.trains[nic.trains]
    train.at = index * DATAGRAM
    train.length = length
    train.segment = segment
    train.plane = plane
    train.peer = peer
    train.port = port
    train.entropy = entropy(nic.placement, port, label)
    train.tos = tos
    train.cut = False
    nic.trains += 1
    if row.impaired:
        impair.apply(datapath, nic.trains - 1)


@kernel
def deliver(engine: Engine, datapath: DataPath) -> None:
    """Hand everything received to the engine, packet by packet."""
    nic = datapath.nic[0]
    for index in range(nic.trains):
        train = datapath.trains[index]
        at, end = train.at, train.at + train.length
        while at < end:
            length = min(train.segment, end - at)
            _prefetch(datapath, index, at + length)
            _deliver(engine, datapath, index, at, length)
            at += length
    nic.trains = 0
    fence()


@kernel
def _prefetch(datapath: DataPath, index: int, at: int) -> None:
    """Prefetch the beginning of the next packet while this one is handled; the processor fetches what follows.

    Two cores that share work through the kernel leave it in the farthest cache: without this the
    first look at each packet was a third of what checking it costs.
    """
    train = datapath.trains[index]
    if at >= train.at + train.length and index + 1 < datapath.nic[0].trains:
        at = datapath.trains[index + 1].at
    place = datapath.staging.ctypes.data + at
    for line in range(AHEAD):
        prefetch(place + line * CACHE_LINE)


@kernel
def _deliver(engine: Engine, datapath: DataPath, index: int, at: int, length: int) -> None:
    """Check one packet, hand it to the engine, and copy its payload to where the engine says."""
    nic = datapath.nic[0]
    ring = datapath.capture[0]
    train = datapath.trains[index]
    row = datapath.planes[train.plane]
    packet = engine.packets[IN]
    packet.entropy = train.entropy
    packet.port = train.plane
    packet.source = train.peer
    packet.marked = 1 if train.tos & 3 == CONGESTED else 0
    packet.trimmed = datapath.trims[train.tos >> 2, 0]
    if train.cut:
        packet.trimmed = Trim.TRIMMED
        length = min(length, impair.TRIMMED_LENGTH)
    row.arrived += 1
    if ring.is_on:
        capture.arrived(datapath, index, at, length)
    if codec.decode(datapath.staging, at, length, datapath.matrix, IN) != WireStatus.OK:
        row.refused += 1
    elif packet.trimmed == Trim.WHOLE and not _is_intact(datapath, index, at, length):
        row.refused += 1
        row.bad_icrc += 1
    elif nic.in_order and _is_early(engine, datapath):
        row.arrived -= 1  # it comes again
        impair.wait_for_others(datapath, index, at, length, packet.psn)
    else:
        receive(engine, nic.now, nic.endpoint, IN)
        if packet.payload != NOWHERE and packet.payload_length > 0:
            begin = at + codec.header_length(datapath.matrix, IN)
            _place(packet.payload, datapath.staging.ctypes.data + begin, packet.payload_length)
            nic.longest_gap = max(nic.longest_gap, nic.now - nic.placed_at)
            nic.placed_at = nic.now


@rare_kernel
def _is_early(engine: Engine, datapath: DataPath) -> bool:
    """Whether the packet is the last of a write, and some of those before it are missing."""
    packet = engine.packets[IN]
    match packet.opcode:
        case Opcode.WRITE_LAST | Opcode.WRITE_LAST_IMM | Opcode.WRITE_ONLY | Opcode.WRITE_ONLY_IMM:
            qp = by_qpn(engine, datapath.nic[0].endpoint, packet.dest_qpn)
        case _:
            return False
    if qp == NONE or packet.trimmed != Trim.WHOLE or not receives_data(engine.qps[qp].state):
        return False
    return bool(0 < distance(packet.psn, engine.qps[qp].expected_psn, PSN_BITS) < tracked_psns(engine, qp))


@kernel
def _place(target: int, source: int, length: int) -> None:
    """Copy a payload to its memory; a long one past the caches, as fetching what it replaces took most of the time."""
    if length < STREAMED:
        copy(target, source, length)
        return
    head = -target & (CACHE_LINE - 1)
    end = head + (length - head) // CACHE_LINE * CACHE_LINE
    copy(target, source, head)
    for at in range(head, end, CACHE_LINE):
        stream_line(target + at, source + at)
    copy(target + end, source + end, length - end)


@kernel
def _is_intact(datapath: DataPath, index: int, at: int, length: int) -> bool:
    train = datapath.trains[index]
    flow = 2 * (train.peer * datapath.nic[0].planes + train.plane) + 1
    bth = datapath.staging.ctypes.data + at
    crc = icrc.prefix(datapath.flows[flow], datapath.prefixes[flow], train.port, length, bth)
    return icrc.is_intact(crc, datapath.staging, at, length)


@kernel
def _who(datapath: DataPath, plane: int, first: int, second: int, third: int, port: int) -> int:
    """Return the peer behind a source address, or NONE; an entry for the exact port wins over one for any port."""
    if first & 0xFFFF == _INET:
        high, low = 0, first >> 32 & 0xFFFFFFFF
    else:
        high, low = second, third
    peer = find_source(datapath, plane, high, low, port)
    return peer if peer != NONE else find_source(datapath, plane, high, low, ANY_PORT)
