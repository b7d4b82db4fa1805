"""The tables of the data path: sockets, remote addresses, arenas. Everything is allocated once, when a NIC opens.

The engine's tables and these are all that compiled code touches. Addresses are memory addresses as
integers; `NamedTuple` of arrays, so that an entry takes them in one argument.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import Int, Int32, Table, table
from openmrc.engine.tables import Engine, WriteRequest
from openmrc.live.datapath.libc import MUTEX_WORDS, IoVector, MessageHeader, SendControl
from openmrc.wire.codec import Bytes, as_matrix
from openmrc.wire.icrc import FLOW_LENGTH, PREFIX_WORDS
from openmrc.wire.layout import LONGEST_HEADER, Matrix

IN, OUT = 0, 1  # rows of the engine's packets that the data path uses
DATAGRAM = 1 << 16  # bytes, the most a socket hands over at once
ARRIVALS = 16  # datagrams (or trains of them) taken in one call
HELD_AT = ARRIVALS * DATAGRAM
TRAINS = 4096  # pieces that wait for the engine within one turn
TRAIN = 64  # packets that UDP_SEGMENT takes at most
MESSAGES = 64  # messages of one sendmmsg
BATCH = 256  # packets of one sendmmsg
FRAME = 4608  # bytes, room for one packet that is held back or captured
HEADROOM = LONGEST_HEADER + 8  # bytes of the arena that one packet takes at most: headers, pad, ICRC
NAME_WORDS = 4
NAME_BYTES = 32  # a sockaddr
CONTROL_WORDS = 32  # control messages of one arrival
COMMANDS = 256  # requests that may lie on the desk; a power of two
WORDS_OF_A_MUTEX = 64  # bytes
PORT_VALUES = 1 << 16
LINK_NEWS = 8192  # words of four bytes; the kernel's announcements have at most 32 KiB
NO_SENDER = -1


class Nic:
    """The NIC as a whole; one row."""

    endpoint: Int  # of the engine
    planes: Int
    now: Int  # ps, as last read
    sleeps_until: Int  # ps; 0: the thread is awake
    wake_at: Int  # ps, when something is due
    step_at: Int  # ps, when impairments change next
    stop: Int  # 1: the thread shall return
    busy_poll: Int  # 1: it never sleeps
    handled: Int  # packets sent and pieces that arrived in the last turn
    waiting: Int  # 1: a user's thread waits at the sockets
    leased_until: Int  # ps, the endpoint's thread leaves the sockets alone until then
    wake_fd: Int  # descriptor that wakes the thread
    python_wake_fd: Int  # descriptor that wakes the thread that runs Python
    link_fd: Int  # descriptor on which rtnetlink announces changes; -1: none
    link_news: Int  # 1: it is readable
    links_changed: Int  # 1: Python shall look at links and addresses
    overdue_since: Int  # ps, when a deadline was first seen to have come while arrivals wait; 0: none has
    called: Int  # 1: it has rung and was not answered yet
    announced: Int  # completions that users may see, as the engine's tail counts
    posted: Int  # requests laid on the desk so far
    taken: Int  # of those, handed to the engine
    train_bytes: Int  # most bytes of one message
    segmentation: Int  # 1: UDP_SEGMENT works
    placement: Int  # wire.entropy.Placement
    evs: Int  # sending sockets of each plane
    # Where tables lie in memory
    messages_at: Int
    vectors_at: Int
    names_at: Int
    arrivals_at: Int
    poll_at: Int
    mutex_at: Int
    # Being assembled for one call of sendmmsg
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
    closed: Int  # 1: its last packet was shorter, none may follow
    contiguous: Int  # 1: the last vector ends at the cursor
    # Held back by impairments
    trains: Int
    held: Int
    held_order: Int
    # Counters
    placed_at: Int  # ps, when data last landed in memory
    longest_gap: Int  # ps between two times, since it was last asked for
    iterations: Int
    sleeps: Int
    unknown_source: Int
    source_key: Int  # secret start of the source table's hash, 31 bits
    capture_head: Int
    capture_tail: Int
    capture_lost: Int
    capturing: Int


class Plane:
    """One plane's receiving socket, and what happens to what arrives there."""

    descriptor: Int
    interface: Int  # index of the network interface; 0: not known
    faults: Int  # link_state.Fault: why the plane does not work; 0: it does
    kernel_drops: Int
    refused: Int  # bytes that were no packet for us
    bad_icrc: Int
    stalls: Int
    send_errors: Int
    last_error: Int  # errno
    # Impairments
    impaired: Int  # 1: look at the rest
    slow: Int  # 1: some of it holds packets back
    down: Int
    delay: Int  # ps
    jitter: Int  # ps
    rate: Int  # bits/s
    loss: Int  # shares in units of 2**-31
    corruption: Int
    duplicate: Int
    reorder: Int
    trim: Int
    free_at: Int  # ps, when the limited rate has passed on all it took
    random: Int
    taken: Int  # packets lost, cut or spoilt on purpose
    bypass_at: Int
    arrived: Int  # packets


class Sender:
    """One sending socket: an entropy value of a plane."""

    descriptor: Int
    plane: Int
    port: Int  # UDP source port


class Peer:
    """One plane of a remote NIC; row = peer of the NIC x planes + plane."""

    name_length: Int  # bytes of its sockaddr; 0: not known


class Source:
    """Whom a source address and port belong to; a slot of an open hash."""

    used: Int
    high: Int
    low: Int
    plane: Int
    port: Int  # 0: any
    peer: Int


class Train:
    """Packets of one sender that lie in the staging area one behind the other, all but the last equally long."""

    at: Int  # byte of the staging area
    length: Int  # bytes, all together
    segment: Int  # bytes of each
    plane: Int
    peer: Int  # of the NIC that sent them
    port: Int  # UDP source port
    entropy: Int
    tos: Int
    cut: Int  # 1: an impairment takes the payload away


class Held:
    """A packet held back; slot of the heap."""

    release: Int  # ps
    order: Int
    slot: Int


class Frame:
    """What was known of a held packet beside its bytes."""

    plane: Int
    peer: Int
    port: Int
    entropy: Int
    tos: Int
    cut: Int
    length: Int


class Command(WriteRequest):
    """A write or a receive to post; of a receive only `wr_id` counts."""

    is_receive: Int
    qp: Int


class Notifier:
    """A completion queue as the data path knows it."""

    descriptor: Int
    armed: Int  # 0 no, 1 any, 2 solicited only


class PollSlot:
    """`struct pollfd`."""

    descriptor: Int32
    events: Int32  # events low, revents high


class Captured:
    """A packet for the capture file."""

    at: Int  # ps
    plane: Int
    outgoing: Int
    peer: Int
    port: Int
    tos: Int
    length: Int


class DataPath(NamedTuple):
    """All of it."""

    nic: Table[Nic]
    planes: Table[Plane]
    senders: Table[Sender]
    ev_values: Matrix  # plane, number of its sending socket -> entropy value
    sender_of: NDArray[np.int16]  # plane, low half of the entropy value -> sender
    peers: Table[Peer]
    names: Matrix  # sockaddr of each remote, for each of the plane's sending sockets
    flows: NDArray[np.uint8]  # of each remote: outgoing, incoming
    prefixes: Matrix  # of each flow: what `icrc.prefix` remembers
    sources: Table[Source]
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
    frames: Table[Frame]
    free_frames: Matrix
    commands: Table[Command]
    notifiers: Table[Notifier]
    notifier_of: Matrix  # qp x 2 + kind -> bell, or NONE
    poll: Table[PollSlot]
    link_news: NDArray[np.int32]  # announcements of rtnetlink
    captured: Table[Captured]
    captured_bytes: Bytes
    # words
    mutex: Matrix  # three of them: who is next, who is in, the desk
    clock: Matrix


def build_datapath(
    engine: Engine, planes: int, senders: int, max_peers: int, notifiers: int, held: int, captured: int
) -> DataPath:
    """Allocate for so many planes, sending sockets, remote NICs, completion queues, and packets held or captured."""
    peers = max_peers * planes
    return DataPath(
        nic=table(Nic, 1),
        planes=table(Plane, planes),
        senders=table(Sender, senders),
        ev_values=np.zeros((planes, senders // planes), np.int64),
        sender_of=np.zeros((planes, PORT_VALUES), np.int16),
        peers=table(Peer, peers),
        names=np.zeros((peers * (senders // planes), NAME_WORDS), np.int64),
        flows=np.zeros((2 * peers, FLOW_LENGTH), np.uint8),
        prefixes=np.zeros((2 * peers, PREFIX_WORDS), np.int64),
        sources=table(Source, _power_of_two(8 * peers * (senders // planes + 1))),
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
        frames=table(Frame, held),
        free_frames=np.arange(held, dtype=np.int64).reshape(-1, 1),
        commands=table(Command, COMMANDS),
        notifiers=table(Notifier, notifiers),
        notifier_of=np.full((len(engine.qps) * 2, 1), -1, np.int64),
        # The thread's planes, its eventfd and rtnetlink; a waiter's planes; a stalled socket.
        poll=table(PollSlot, 2 * planes + 3),
        link_news=np.zeros(LINK_NEWS, np.int32),
        captured=table(Captured, max(captured, 1)),
        captured_bytes=np.zeros(max(captured, 1) * FRAME, np.uint8),
        mutex=np.zeros((3, MUTEX_WORDS), np.int64),
        clock=np.zeros((4, 2), np.int64),
    )


def address_of(rows: Any, index: int = 0) -> int:
    """Return where a row lies in memory."""
    array = np.asarray(rows)
    return int(array.ctypes.data + index * array.strides[0])


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()
