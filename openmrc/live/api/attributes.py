"""The structs and enumerations of the application API, in the nouns of `mrc.h`.

Facts going in and out, nothing else: no socket, no state. Values of enumerations are those of
`mrc.h` and of rdma-core's `verbs.h`, so that logs compare.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

import msgspec

from openmrc.engine.regions import Access
from openmrc.engine.states import EvState, QpState
from openmrc.engine.tables import Cause, WcStatus

PROTOCOL_V1 = 1  # bit 0 of the wire protocol bitmap
TIMEOUT_UNIT_US = 1.024  # a timeout t means this x 2**t
MAX_TIMEOUT = 24
LONGEST_WAIT_S = 17.18  # 1.024 us x 2**24
MAX_LINEAR = 7
INFINITE_RETRIES = 25  # of exponential_count


class DeviceCap(IntFlag):
    """What the device can do (mrc_device_cap)."""

    TRIM_NACK = 1
    DYNAMIC_MPR = 2
    SVC_TIME = 4


class QpCap(IntFlag):
    """What both ends of a queue pair agreed on (mrc_qp_cap)."""

    TRIM_NACK_DEST_UNSUPPORTED = 1
    DYNAMIC_MPR = 2
    SVC_TIME_DEST_UNSUPPORTED = 4


class WcOpcode(IntEnum):
    """What a completion is about; values as `enum ibv_wc_opcode`."""

    RDMA_WRITE = 1
    RECV_RDMA_WITH_IMM = 129


class EvFormat(IntEnum):
    """Where the entropy value travels (mrc_ctl.h)."""

    STEV = 0
    SRV6 = 1
    UDP = 2


class AsyncEventKind(IntEnum):
    """Kinds of asynchronous events; the first four as in verbs, the others show the paths."""

    CQ_ERR = 0
    QP_FATAL = 1
    PORT_ACTIVE = 9
    PORT_ERR = 10
    PEER_PORTS = 100
    EV_STATE = 101


@dataclass(frozen=True, kw_only=True)
class DeviceAttr:
    """What this context offers (mrc_device_attr, and what verbs' ibv_device_attr adds)."""

    protocol_version: int  # bitmap, bit 0: version 1
    max_wimm: int  # writes with immediate in flight, as requester
    max_wimm_dest: int  # the same as responder
    max_mpr: int  # unit 128 PSNs
    mpr_resolution: int  # unit 128 PSNs
    max_qp_hint: int
    cap: DeviceCap
    max_qp: int
    max_mr: int
    max_cq: int
    max_cqe: int  # per completion queue
    max_peers: int
    max_send_wr: int
    max_recv_wr: int
    max_mtu: int  # bytes
    planes: tuple[str, ...]  # local address of each plane, plane 0 first
    ev_format: EvFormat
    evs_per_plane: int
    segmentation: bool  # UDP_SEGMENT and UDP_GRO are used


@dataclass(frozen=True, kw_only=True)
class ContextAttr:
    """Sizes of a context, all fixed when it is opened, so that nothing is allocated while packets move."""

    max_qp: int = 8
    max_peers: int = 8
    max_mr: int = 64
    max_cq: int = 4096  # at least 2 x max_qp
    max_send_wr: int = 256  # per queue pair
    max_recv_wr: int = 1024  # per queue pair
    max_wimm: int = 256
    max_mpr: int = 32  # unit 128 PSNs
    evs_per_plane: int = 8  # active and reserve together
    mtu: int = 4096  # bytes, largest path MTU
    ev_format: EvFormat = EvFormat.UDP
    receive_buffer: int = 4 << 20  # bytes asked of the kernel for each plane's socket
    busy_poll: bool = False  # True: never sleep; costs a core, saves wake-ups
    segmentation: bool = True  # False: one datagram a packet, even where the kernel could do better
    seed: int = 0  # of paths and impairments; 0: random paths


@dataclass(frozen=True, kw_only=True)
class QpHintAttr:
    """What an application knows of its traffic (mrc_qp_hint_attr); a hint, never a promise."""

    num_qps_per_peer: int = 1
    num_send_peers: int = 1
    num_remote_recv_peers: int = 1
    vendor_cfg: bytes = b""  # at most 128 bytes


@dataclass(frozen=True, kw_only=True)
class PeerAddress:
    """Where a remote NIC is: one address for each plane, "192.0.2.1", "[2001:db8::1]:4791" and so on.

    Only packets from the named source ports are taken for its own; without names, from any port of its addresses.
    """

    planes: tuple[str, ...]
    source_ports: tuple[tuple[int, ...], ...] = ()  # per plane; tells endpoints that share an address apart
    any_source_port: bool = False  # other ports too: a translation on the way may change them


@dataclass(frozen=True, kw_only=True)
class QpInitAttr:
    """How a queue pair is made (mrc_qp_init_attr)."""

    send_cq: Any
    recv_cq: Any
    max_send_wr: int = 128
    max_recv_wr: int = 128
    sq_sig_all: bool = False
    qp_context: Any = None
    protocol_version: int = PROTOCOL_V1


@dataclass(frozen=True, kw_only=True)
class QpAttr:
    """Attributes of a queue pair (ibv_qp_attr and mrc_qp_attr); None: not set, as a mask bit left out.

    Needed: INIT access_flags. RTR remote, dest_qpn, rq_psn, path_mtu, max_wimm_dest, mpr_dest.
    RTS sq_psn, max_wimm, mpr, timeout, linear_count, exponential_count.
    """

    state: QpState | None = None
    cur_state: QpState | None = None  # asserted: EINVAL if the queue pair is in another one
    access_flags: Access | None = None
    remote: PeerAddress | None = None  # verbs: the address vector
    dest_qpn: int | None = None
    rq_psn: int | None = None  # 24 bits, first PSN expected
    sq_psn: int | None = None  # 24 bits, first PSN sent
    path_mtu: int | None = None  # bytes: 256, 512, 1024, 2048, 4096
    max_wimm: int | None = None
    max_wimm_dest: int | None = None
    mpr: int | None = None  # unit 128 PSNs: the window we grant the peer
    mpr_dest: int | None = None  # unit 128 PSNs: the window the peer grants us
    timeout: int | None = None  # 1.024 us x 2**timeout, 0..24
    linear_count: int | None = None  # retries at one timeout, 0..7
    exponential_count: int | None = None  # further retries, doubling, 0..25; 25 is for ever
    ev_profile_id: int | None = None  # 0: the context's own
    cc_profile_id: int | None = None  # 0: the context's own
    hint: Any = None  # a QpHint
    cap: QpCap | None = None
    qpn: int | None = None  # only answered, by query


class SendWr(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A write to post (ibv_send_wr): RDMA_WRITE, or RDMA_WRITE_WITH_IMM if `immediate` is given."""

    wr_id: int = 0
    local: Any  # a MemoryRegion, or a slice of one: region[a:b]
    remote_addr: int
    r_key: int
    immediate: int | None = None  # 32 bits
    signaled: bool = True  # without it only failures complete, unless the queue pair has sq_sig_all
    solicited: bool = False


class RecvWr(msgspec.Struct, frozen=True, kw_only=True):
    """A receive to post: takes one write with immediate. It has no memory: the sender says where to write."""

    wr_id: int = 0


class WorkCompletion(msgspec.Struct, frozen=True, gc=False):
    """What became of one posted request (ibv_wc)."""

    wr_id: int
    status: WcStatus
    opcode: WcOpcode
    byte_len: int  # of receives and of writes: bytes of the message
    immediate: int | None
    qp_num: int
    solicited: bool = False
    error: str = ""  # for people: what happened to the queue pair; empty on success

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.status == WcStatus.SUCCESS


@dataclass(frozen=True, slots=True)
class AsyncEvent:
    """Something that happened besides the requests (mrc_async_event)."""

    kind: AsyncEventKind
    qp_num: int | None = None
    cq: Any = None  # the CompletionQueue that overran
    plane: int | None = None  # from 0
    ev: int | None = None
    ev_state: EvState | None = None
    cause: Cause | None = None
    port_mask: int | None = None  # bit n: plane n works
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class PlaneCounters:
    """What one plane has carried since the context was opened."""

    plane: int
    address: str
    up: bool
    sent_packets: int
    sent_bytes: int  # payload
    received_packets: int
    received_bytes: int  # payload
    retransmitted: int
    lost: int  # sent, and inferred lost
    marked: int
    trimmed: int
    control_sent: int
    control_received: int
    impaired: int  # taken away, cut or spoilt by impairments, on arrival
    refused: int  # arrived bytes that were no valid packet for us
    send_stalls: int  # times the socket had no room
    send_errors: int  # packets that the kernel did not take, or that had no address
    kernel_drops: int  # datagrams the kernel dropped because the socket's buffer was full


@dataclass(frozen=True, kw_only=True)
class CaptureReport:
    """What became of a context's capture file."""

    path: str
    packets: int  # in the file
    lost: int  # not in the file: it could not keep up, or took no more
    error: str | None  # why it took no more

    @property
    def is_complete(self) -> bool:
        """Whether every packet is in the file."""
        return self.lost == 0 and self.error is None


@dataclass(frozen=True, kw_only=True)
class EvStatus:
    """What a queue pair thinks of one of its entropy values."""

    plane: int
    ev: int
    state: EvState
    active: bool  # in the rotation, not in the reserve
    sent: int
    acked: int
    lost: int
    marked: int
    trimmed: int
    probes: int


@dataclass(frozen=True, kw_only=True)
class QpCounters:
    """What one queue pair has done since it left RESET."""

    sent_packets: int
    sent_bytes: int
    received_packets: int
    retransmitted: int
    timeouts: int
    inferred_losses: int
    spurious: int
    duplicates: int
    out_of_window: int
    sacks_sent: int
    sacks_received: int
    nacks_sent: int
    nacks_received: int
    probes_sent: int
    inflight: int  # bytes
    cwnd: int  # bytes
    srtt_us: float


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """What `connect` and `Listener.accept` ask for when they bring a queue pair up; both sides state theirs."""

    path_mtu: int = 0  # bytes, 256 to 4096; the lesser of both sides' is used; 0: the largest that all our planes take
    mpr: int = 32  # unit 128 PSNs, granted to the peer
    max_wimm: int = 128
    max_send_wr: int = 128
    max_recv_wr: int = 512
    timeout: int = 14  # 16.8 ms
    linear_count: int = 7
    exponential_count: int = 7  # with the two above: a dead peer is an error after about 4.4 s
    dynamic_mpr: bool = False
    sq_sig_all: bool = False
    hint: QpHintAttr = field(default_factory=QpHintAttr)

    @property
    def give_up_s(self) -> float:
        """Seconds of silence after which the retry budget is spent."""
        once = TIMEOUT_UNIT_US * 1e-6 * (1 << self.timeout)
        if self.exponential_count >= INFINITE_RETRIES:
            return float("inf")
        return once * (self.linear_count + 1) + sum(
            min(once * (1 << k), LONGEST_WAIT_S) for k in range(1, self.exponential_count + 1)
        )
