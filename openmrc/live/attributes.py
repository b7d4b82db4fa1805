"""Structs and enumerations of the application API, named as in `mrc.h`.

Plain data: no sockets, no state. Values of enumerations are those of `mrc.h` and of rdma-core's `verbs.h`, so that
logs are comparable.
"""

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

import msgspec

from openmrc.engine.responder.regions import Access
from openmrc.engine.state.machines import EvState, QpState
from openmrc.engine.state.tables import Cause, WcStatus

PROTOCOL_V1 = 1  # bit 0 of the wire protocol bitmap
TIMEOUT_UNIT_US = 1.024  # a timeout t means this x 2**t
SILENT_TIMEOUTS = 4  # timeouts that a peer may take which answers nothing at all (IBTA volume 1, 9.7.6.1.3)
MAX_TIMEOUT = 24
MAX_LINEAR = 7
INFINITE_RETRIES = 25  # of exponential_count
USER_TIMEOUT_S = 20.0  # ours: outlasts the pause of a virtual machine; NCCL over InfiniBand waits for 34 s


class DeviceCap(IntFlag):
    """Device capabilities (mrc_device_cap)."""

    TRIM_NACK = 1
    DYNAMIC_MPR = 2
    SVC_TIME = 4


class QpCap(IntFlag):
    """Capabilities that both ends of a queue pair agreed on (mrc_qp_cap)."""

    TRIM_NACK_DEST_UNSUPPORTED = 1
    DYNAMIC_MPR = 2
    SVC_TIME_DEST_UNSUPPORTED = 4


class WcOpcode(IntEnum):
    """Operation of a completion; values as `enum ibv_wc_opcode`."""

    RDMA_WRITE = 1
    RECV_RDMA_WITH_IMM = 129


class EvFormat(IntEnum):
    """Header fields that carry the entropy value (mrc_ctl.h)."""

    STEV = 0
    SRV6 = 1
    UDP = 2


class AsyncEventKind(IntEnum):
    """Kinds of asynchronous events; the first four as in verbs, the others concern paths."""

    CQ_ERR = 0
    QP_FATAL = 1
    PORT_ACTIVE = 9
    PORT_ERR = 10
    PEER_PORTS = 100
    EV_STATE = 101
    SILENT_PLANE = 102


@dataclass(frozen=True, kw_only=True)
class DeviceAttr:
    """Limits of this context (mrc_device_attr, and those of verbs' ibv_device_attr)."""

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
    """Sizes of a context, fixed when it is opened, so that nothing is allocated on the data path."""

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
    receive_buffer: int = 4 << 20  # bytes requested from the kernel for each plane's socket
    # us that a waiting call polls before it sleeps, at most 1,000; 0: never. None: as MRC_POLL_US says, or else as long
    # as a few wake-ups take here. In much traffic the endpoint's thread polls too, 20 us at most.
    poll_us: float | None = None
    segmentation: bool = True  # False: one datagram per packet, even where the kernel supports segmentation
    seed: int = 0  # of paths and impairments; 0: random paths
    # Controller socket (openmrc.ctl): "off", "on", or the folder for it. None: as MRC_CTL says, "off" without it:
    # a library opens nothing that listens unless it is asked.
    ctl: str | None = None


@dataclass(frozen=True, kw_only=True)
class QpHintAttr:
    """Expected traffic of an application (mrc_qp_hint_attr); a hint, not a promise."""

    num_qps_per_peer: int = 1
    num_send_peers: int = 1
    num_remote_recv_peers: int = 1
    vendor_cfg: bytes = b""  # at most 128 bytes


@dataclass(frozen=True, kw_only=True)
class PeerAddress:
    """Addresses of a remote NIC, one per plane: "192.0.2.1", "[2001:db8::1]:4791" and so on.

    Only packets from the named source ports are accepted from it; without names, from any port of its addresses.
    """

    planes: tuple[str, ...]
    source_ports: tuple[tuple[int, ...], ...] = ()  # per plane; distinguishes endpoints that share an address
    any_source_port: bool = False  # accept other ports too: an address translation may change them


@dataclass(frozen=True, kw_only=True)
class QpInitAttr:
    """Initial attributes of a queue pair (mrc_qp_init_attr)."""

    send_cq: Any
    recv_cq: Any
    max_send_wr: int = 128
    max_recv_wr: int = 128
    sq_sig_all: bool = False
    qp_context: Any = None
    protocol_version: int = PROTOCOL_V1


@dataclass(frozen=True, kw_only=True)
class QpAttr:
    """Attributes of a queue pair (ibv_qp_attr and mrc_qp_attr); None: not set, like a cleared mask bit.

    Required: INIT access_flags. RTR remote, dest_qpn, rq_psn, path_mtu, max_wimm_dest, mpr_dest.
    RTS sq_psn, max_wimm, mpr, timeout, linear_count, exponential_count.
    """

    state: QpState | None = None
    cur_state: QpState | None = None  # asserted: EINVAL if the queue pair is in another state
    access_flags: Access | None = None
    remote: PeerAddress | None = None  # verbs: the address vector
    dest_qpn: int | None = None
    rq_psn: int | None = None  # 24 bits, first PSN expected
    sq_psn: int | None = None  # 24 bits, first PSN sent
    path_mtu: int | None = None  # bytes: 256, 512, 1024, 2048, 4096
    max_wimm: int | None = None
    max_wimm_dest: int | None = None
    mpr: int | None = None  # unit 128 PSNs: the window granted to the peer
    mpr_dest: int | None = None  # unit 128 PSNs: the window granted by the peer
    timeout: int | None = None  # 1.024 us x 2**timeout, 0..24
    linear_count: int | None = None  # retries at one timeout, 0..7
    exponential_count: int | None = None  # further retries, doubling, 0..25; 25 is unlimited
    user_timeout: float | None = None  # s without progress until RETRY_EXC_ERR, inf: none; 0: what the retries take
    ev_profile_id: int | None = None  # 0: the context's default
    cc_profile_id: int | None = None  # 0: the context's default
    hint: Any = None  # a QpHint
    cap: QpCap | None = None
    qpn: int | None = None  # output of query only


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
    """A receive to post: consumes one write with immediate. It has no memory; the sender names the address."""

    wr_id: int = 0


class WorkCompletion(msgspec.Struct, frozen=True, gc=False):
    """The result of one posted request (ibv_wc)."""

    wr_id: int
    status: WcStatus
    opcode: WcOpcode
    byte_len: int  # of receives and of writes: bytes of the message
    immediate: int | None
    qp_num: int
    solicited: bool = False
    error: str = ""  # description of the queue pair's state; empty on success

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.status == WcStatus.SUCCESS


@dataclass(frozen=True, slots=True)
class AsyncEvent:
    """An asynchronous event (mrc_async_event)."""

    kind: AsyncEventKind
    qp_num: int | None = None
    cq: Any = None  # the CompletionQueue that overran
    plane: int | None = None  # from 0
    ev: int | None = None
    ev_state: EvState | None = None
    cause: Cause | None = None
    port_mask: int | None = None  # bit n: plane n is up
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class PlaneCounters:
    """Counters of one plane since the context was opened."""

    plane: int
    address: str
    up: bool
    silent: bool  # towards some peer: what was sent there is lost, and data for that peer takes the other planes
    silences: int  # times that a queue pair found it silent
    sent_packets: int
    sent_bytes: int  # payload
    received_packets: int
    received_bytes: int  # payload
    retransmitted: int
    lost: int  # sent, and inferred lost
    requeued: int  # sent, and asked for again by a NACK
    false_losses: int  # of both, those that had arrived before they were sent again
    marked: int
    trimmed: int
    control_sent: int
    control_received: int
    impaired: int  # dropped, trimmed or corrupted by impairments, on arrival
    refused: int  # bytes that were not a valid packet for this endpoint
    send_stalls: int  # times the socket buffer was full
    send_errors: int  # packets that the kernel refused, or without a known address
    kernel_drops: int  # datagrams the kernel dropped because the socket's buffer was full


@dataclass(frozen=True, kw_only=True)
class CaptureReport:
    """Completeness of a context's capture file."""

    path: str
    packets: int  # in the file
    lost: int  # not in the file, because writing was too slow or failed
    error: str | None  # reason of the failure

    @property
    def is_complete(self) -> bool:
        """Whether every packet is in the file."""
        return self.lost == 0 and self.error is None


@dataclass(frozen=True, kw_only=True)
class EvStatus:
    """State and counters of one entropy value of a queue pair."""

    plane: int
    ev: int
    state: EvState
    active: bool  # in the rotation, not the reserve
    silent: bool  # its plane is silent: the EV carries data only if all planes are
    sent: int
    acked: int
    lost: int
    marked: int
    trimmed: int
    probes: int
    false_losses: int  # of `lost`, packets that had arrived before they were sent again

    @property
    def is_usable(self) -> bool:
        """Return whether the state allows data (MRC §9.3.1)."""
        return self.state in (EvState.GOOD, EvState.SKIP)

    @property
    def label(self) -> str:
        """Return the name of the state, or SILENT for an EV that could be used, were its plane not silent."""
        return "SILENT" if self.silent and self.is_usable else self.state.name


@dataclass(frozen=True, kw_only=True)
class QpCounters:
    """Counters of one queue pair since it left RESET."""

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
    """Terms of a new connection; both sides state theirs."""

    path_mtu: int = (
        0  # bytes, 256 to 4096; the smaller of both sides' is used; 0: the largest that all local planes support
    )
    mpr: int = 32  # unit 128 PSNs, granted to the peer
    max_wimm: int = 128
    max_send_wr: int = 128
    max_recv_wr: int = 512
    timeout: int = 14  # 16.8 ms
    linear_count: int = 7
    exponential_count: int = 7
    user_timeout: float = USER_TIMEOUT_S  # s without progress on any plane until RETRY_EXC_ERR; inf: none
    dynamic_mpr: bool = False
    sq_sig_all: bool = False
    hint: QpHintAttr = field(default_factory=QpHintAttr)
