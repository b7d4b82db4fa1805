"""The tables of the data path: sockets, remote addresses, arenas. Everything is allocated once, when a NIC opens.

Compiled code touches these, the engine's tables, and the rings of completion queues. Addresses are memory addresses
as integers; a `NamedTuple` of arrays, so that an entry takes them in one argument.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import Bool, Instant, Int, Int32, Table, dtype_of, table
from openmrc.engine.state.tables import NONE, Completion, Engine, Event, WriteRequest
from openmrc.live.datapath.libc import MUTEX_WORDS, IoVector, MessageHeader, SendControl
from openmrc.wire.codec import Bytes, as_matrix
from openmrc.wire.icrc import FLOW_LENGTH, PREFIX_WORDS
from openmrc.wire.layout import LONGEST_HEADER, Matrix

IN, OUT = 0, 1  # rows of the engine's packets that the data path uses
DATAGRAM = 1 << 16  # bytes, the most a socket hands over at once
ARRIVALS = 16  # datagrams (or trains of them) taken in one call, at most
HELD_AT = ARRIVALS * DATAGRAM
TRAINS = 4096  # pieces that wait for the engine within one turn
TRAIN = 64  # packets that UDP_SEGMENT takes at most
TRAIN_BYTES = 65_000  # bytes of one of its messages; the limit over IPv4 is 65,507
MESSAGES = 64  # messages of one sendmmsg
BATCH = 256  # packets of one sendmmsg
FRAME = 4608  # bytes, room for one packet that is held back or captured
INLINE = 256  # bytes of payload up to which it is copied behind its headers: the kernel gathers one piece, not two
HEADROOM = LONGEST_HEADER + INLINE + 8  # bytes of the arena that one packet takes at most: with pad and ICRC
NAME_WORDS = 4
NAME_BYTES = 32  # a sockaddr
CONTROL_WORDS = 32  # control messages of one arrival
COMMANDS = 256  # requests that may wait for the event loop; a power of two
RECORDS = 256  # events handed to Python in one call
MUTEX_BYTES = 8 * MUTEX_WORDS
NEXT_MUTEX, LOOP_MUTEX, QUEUES_MUTEX = (MUTEX_BYTES * place for place in range(3))  # bytes from `nic.mutex_at`
FRAME_HEADERS = 48  # bytes: IPv6 and UDP
CAPTURE_SLACK = DATAGRAM  # bytes behind the ring, for the block that wraps around
PORT_VALUES = 1 << 16
LINK_NEWS = 8192  # words of four bytes; the kernel's announcements have at most 32 KiB
NO_SENDER = -1
CLOCK_BYTES = 16  # a row of `clock`; row 0 belongs to the holder of the loop mutex
CLOCK_OF_THREAD, SCRATCH_OF_THREAD, CLOCK_OF_WAITER = 1, 2, 3


class NicRow:
    """The NIC as a whole; one row."""

    endpoint: Int  # of the engine
    planes: Int
    epoch: Int  # s of CLOCK_MONOTONIC at which the endpoint's time is 0
    now: Instant  # ps since the epoch, as last read
    wake_at: Instant  # ps, when something is due
    step_at: Instant  # ps, when impairments change next
    stop: Bool  # the thread returns
    handled: Int  # packets sent and trains received in the last iteration
    wake_fd: Int  # descriptor that wakes the thread
    python_wake_fd: Int  # descriptor that wakes the thread that runs Python
    link_fd: Int  # descriptor on which rtnetlink announces changes; -1: none
    link_news: Bool  # it is readable
    links_changed: Bool  # Python shall look at links and addresses
    overdue_since: Instant  # ps, when a deadline was first seen to have come while arrivals wait; 0: none has
    called: Bool  # it was signalled and has not answered yet
    overruns: Int  # completion queues that overflowed and were not reported yet
    posted: Int  # requests submitted so far
    taken: Int  # of those, handed to the engine
    train_bytes: Int  # most bytes of one message
    segmentation: Bool  # UDP_SEGMENT works
    placement: Int  # wire.entropy.EvPlacement
    evs: Int  # sending sockets of each plane
    ps_per_byte: Int  # of each port; 0: not known, and not paced
    paced_ahead: Int  # ps of work that a port may have before it gets more
    closed_planes: Int  # mask, when the engine was last asked for a packet
    halted: Bool  # the capture file must catch up before anything is read or sent
    in_order: Bool  # the last packet of a write is placed when all before it are
    # Polling before sleep
    poll_limit: Int  # ps that a wait polls at most; 0: never
    poll_failures: Int  # polls in a row that ended without anything
    poll_pause: Int  # waits that sleep at once before one polls again
    # Machine addresses of the two halves of an iteration
    take_in_at: Int
    send_out_at: Int
    # Where tables lie in memory
    messages_at: Int
    vectors_at: Int
    names_at: Int
    arrivals_at: Int
    poll_at: Int
    mutex_at: Int
    record_at: Int
    # Held back by impairments
    trains: Int
    held: Int
    held_order: Int
    # Counters
    placed_at: Instant  # ps, when data last landed in memory
    longest_gap: Int  # ps between two times, since it was last asked for
    iterations: Int
    sleeps: Int
    polls: Int  # waits that polling ended
    sendings: Int  # calls of sendmmsg
    unknown_source: Int
    source_key: Int  # secret start of the source table's hash, 31 bits


class Lease:
    """Who attends the sockets (`loop.leases`); one row."""

    attendant: Int  # Attendant
    until: Instant  # ps, the endpoint's thread leaves the sockets alone until then; 0: it attends them
    sleeps_until: Instant  # ps; 0: the endpoint's thread is awake
    asked: Bool  # a thread polled while the endpoint's iterated
    poll_lease: Int  # ps, how long a lease of a thread that polls lasts now
    left_at: Instant  # ps, when a user's thread last left with a completion; 0: it has come back
    received_after: Int  # `posted` when a poll last found arrivals that completed nothing
    prompt: Bool  # it came back at once the last time: its data goes before the answers


class Bursts:
    """What a program posts call by call (`loop.gathering`); one row."""

    gathering: Int  # Gathering
    posts: Int  # calls that posted since a thread last polled
    ended_at: Instant  # ps, when the last burst of several ended with a poll
    pause: Int  # bursts that are not gathered, while PAUSED
    next_pause: Int  # such bursts when its program forgets the next time


class Assembly:
    """What is assembled for one call of sendmmsg; one row."""

    messages: Int
    packets: Int
    vectors: Int
    cursor: Int  # next free byte of the header arena
    sender: Int
    remote: Int
    tos: Int
    segment: Int  # bytes of each packet of the message
    total: Int  # bytes of the message
    train: Int  # packets of the message
    closed: Bool  # its last packet was shorter, none may follow
    contiguous: Bool  # the last vector ends at the cursor


class CaptureRing:
    """A ring of pcapng blocks on their way to the file; one row."""

    is_on: Bool
    clock: Int  # ns since 1970 at the epoch
    head: Int  # bytes written to the file
    tail: Int  # bytes of blocks in the ring, ever
    packets: Int
    lost: Int  # packets that are not in the file
    closed: Bool  # the file takes no more
    waits_at: Int  # value of `head` since `waits_since`
    waits_since: Instant  # ps


class PlaneSocket:
    """One plane's receiving socket, and what happens to what arrives there."""

    descriptor: Int
    interface: Int  # index of the network interface; 0: not known
    faults: Int  # link_state.Fault: why the plane does not work; 0: it does
    bulk: Bool  # its last datagrams were long
    kernel_drops: Int
    refused: Int  # bytes that were no packet for us
    bad_icrc: Int
    stalls: Int
    send_errors: Int
    last_error: Int  # errno
    busy_until: Instant  # ps, when its port has sent all it was given, if it is paced
    # Impairments
    impaired: Bool  # look at the rest
    slow: Bool  # some of it holds packets back
    down: Bool
    delay: Int  # ps
    jitter: Int  # ps
    rate: Int  # bits/s
    loss: Int  # shares in units of 2**-31
    corruption: Int
    duplicate: Int
    reorder: Int
    trim: Int
    free_at: Instant  # ps, when the limited rate has passed on all it took
    random: Int
    taken: Int  # packets lost, trimmed or corrupted on purpose
    arrived: Int  # packets


class SendingSocket:
    """One sending socket: an entropy value of a plane."""

    descriptor: Int
    plane: Int
    port: Int  # UDP source port


class PeerPlane:
    """One plane of a remote NIC; row = peer of the NIC x planes + plane."""

    name_length: Int  # bytes of its sockaddr; 0: not known


class SourceAddress:
    """The peer that a source address and port belong to; a slot of an open hash table."""

    used: Bool
    high: Int
    low: Int
    plane: Int
    port: Int  # 0: any
    peer: Int


class Train:
    """Consecutive packets of one sender in the staging area, all but the last of equal length."""

    at: Int  # byte of the staging area
    length: Int  # bytes, all together
    segment: Int  # bytes of each
    plane: Int
    peer: Int  # of the NIC that sent them
    port: Int  # UDP source port
    entropy: Int
    tos: Int
    cut: Bool  # an impairment trims it


class Held:
    """A packet held back; slot of the heap."""

    release: Instant  # ps
    order: Int
    slot: Int


class PostCommand(WriteRequest):
    """A write or a receive to post; of a receive only `wr_id` counts. All words, since Python packs whole rows."""

    is_receive: Int  # 1 or 0
    qp: Int


class PostQueue:
    """One send or receive queue of a queue pair; row = queue pair x 2 + (0 send, 1 receive)."""

    posted: Int  # requests submitted since RESET


class CompletionRecord(Completion):
    """A completion in the ring of its completion queue: all words, since Python reads whole records as such."""

    qpn: Int  # of its queue pair when it completed


RECORD_BYTES = dtype_of(CompletionRecord).itemsize


class CompletionRing:
    """A completion queue: the data path publishes records, the application takes them."""

    ring: Int  # address of its records
    mask: Int  # records of the ring - 1
    capacity: Int  # completions that it holds
    published: Int  # records ever written
    taken: Int  # records ever taken
    overrun: Bool  # a completion did not fit and was lost
    descriptor: Int  # eventfd for `notify`
    armed: Int  # 0 no, 1 for any completion, 2 for a solicited one
    events: Int  # times that it was armed and signalled
    channel: Int  # eventfd of its completion channel, or NONE
    sleeping: Bool  # signal `wakeup` at the next completion
    wakeup: Int  # eventfd for threads and tasks that wait


class PollSlot:
    """`struct pollfd`."""

    descriptor: Int32
    events: Int32  # events low, revents high


class DataPath(NamedTuple):
    nic: Table[NicRow]
    leases: Table[Lease]
    bursts: Table[Bursts]
    assembly: Table[Assembly]
    capture: Table[CaptureRing]
    planes: Table[PlaneSocket]
    senders: Table[SendingSocket]
    ev_values: Matrix  # plane, number of its sending socket -> entropy value
    sender_of: NDArray[np.int16]  # plane, low half of the entropy value -> sender
    peers: Table[PeerPlane]
    names: Matrix  # sockaddr of each remote, for each of the plane's sending sockets
    flows: NDArray[np.uint8]  # of each remote: outgoing, incoming
    prefixes: Matrix  # of each flow: what `icrc.prefix` remembers
    sources: Table[SourceAddress]
    traffic: Matrix  # traffic class -> type of service byte
    trims: Matrix  # type of service >> 2 -> Trim
    matrix: Matrix  # the engine's packets
    # arenas
    headers: Bytes
    messages: Table[MessageHeader]
    vectors: Table[IoVector]
    controls: Table[SendControl]
    staging: Bytes  # what sockets handed over; from HELD_AT on, packets held back
    trains: Table[Train]
    arrivals: Table[MessageHeader]
    arrival_vectors: Table[IoVector]
    arrival_names: Matrix
    arrival_controls: Matrix
    heap: Table[Held]
    frames: Table[Train]  # packets held back, one a train
    free_frames: Matrix
    commands: Table[PostCommand]
    queues: Table[PostQueue]
    record: Table[CompletionRecord]  # one row, being copied
    cqs: Table[CompletionRing]
    cq_of: Matrix  # queue pair x 2 + CompletionKind -> row of `cqs`, or NONE
    event_records: Table[Event]  # of the engine, for Python
    poll: Table[PollSlot]
    link_news: NDArray[np.int32]  # announcements of rtnetlink
    frame_headers: NDArray[np.uint8]  # of each flow: IP and UDP headers for captures
    captured: Bytes
    # words
    mutex: Matrix  # three: next in line, event loop, queues
    clock: Matrix


def build_datapath(
    engine: Engine, planes: int, senders: int, max_peers: int, cqs: int, held: int, captured: int
) -> DataPath:
    """Allocate for so many planes, sending sockets, remote NICs, completion queues, held packets and captured bytes."""
    peers = max_peers * planes
    return DataPath(
        nic=table(NicRow, 1),
        leases=table(Lease, 1),
        bursts=table(Bursts, 1),
        assembly=table(Assembly, 1),
        capture=table(CaptureRing, 1),
        planes=table(PlaneSocket, planes),
        senders=table(SendingSocket, senders),
        ev_values=np.zeros((planes, senders // planes), np.int64),
        sender_of=np.zeros((planes, PORT_VALUES), np.int16),
        peers=table(PeerPlane, peers),
        names=np.zeros((peers * (senders // planes), NAME_WORDS), np.int64),
        flows=np.zeros((2 * peers, FLOW_LENGTH), np.uint8),
        prefixes=np.zeros((2 * peers, PREFIX_WORDS), np.int64),
        sources=table(SourceAddress, _power_of_two(8 * peers * (senders // planes + 1))),
        traffic=np.zeros((4, 1), np.int64),
        trims=np.zeros((64, 1), np.int64),
        matrix=as_matrix(engine.packets),
        headers=np.zeros(BATCH * HEADROOM + HEADROOM, np.uint8),
        messages=table(MessageHeader, MESSAGES),
        vectors=table(IoVector, 3 * BATCH + 8),
        controls=table(SendControl, MESSAGES),
        staging=np.zeros(HELD_AT + held * FRAME, np.uint8),
        trains=table(Train, TRAINS),
        arrivals=table(MessageHeader, ARRIVALS),
        arrival_vectors=table(IoVector, ARRIVALS),
        arrival_names=np.zeros((ARRIVALS, NAME_WORDS), np.int64),
        arrival_controls=np.zeros((ARRIVALS, CONTROL_WORDS), np.int64),
        heap=table(Held, held + 1),
        frames=table(Train, held),
        free_frames=np.arange(held, dtype=np.int64).reshape(-1, 1),
        commands=table(PostCommand, COMMANDS),
        queues=table(PostQueue, 2 * len(engine.qps)),
        record=table(CompletionRecord, 1),
        cqs=table(CompletionRing, cqs),
        cq_of=np.full((len(engine.qps) * 2, 1), NONE, np.int64),
        event_records=table(Event, RECORDS),
        # The thread's planes, its eventfd and rtnetlink; a waiter's planes and its descriptor; a stalled socket.
        poll=table(PollSlot, 2 * planes + 4),
        link_news=np.zeros(LINK_NEWS, np.int32),
        frame_headers=np.zeros((2 * peers if captured else 1, FRAME_HEADERS), np.uint8),
        captured=np.zeros(captured + CAPTURE_SLACK if captured else 1, np.uint8),
        mutex=np.zeros((3, MUTEX_WORDS), np.int64),
        clock=np.zeros((4, 2), np.int64),
    )


def address_of(rows: Any, index: int = 0) -> int:
    array = np.asarray(rows)
    return int(array.ctypes.data + index * array.strides[0])


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()
