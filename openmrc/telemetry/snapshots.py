"""What an endpoint tells of itself at one moment: plain data, read by exposition, terminal and page alike.

Counters never fall while their endpoint lives; they begin at 0 when it is opened. Ports count from 1, as in
`mrc_ctl.h` and in the labels of node_exporter. A field may be added if it has a default.
"""

import msgspec

from openmrc.ctl.device import EvReport

EV_STATES = ("GOOD", "SKIP", "ASSUMED_BAD", "DENIED")


class PortSnapshot(msgspec.Struct, kw_only=True):
    """One port of a NIC: what it carried, what became of it, and the EVs of all queue pairs on it."""

    port: int
    address: str = ""
    up: bool = True  # used for sending
    faults: list[str] = []  # why it is not: DISABLED, NO_CARRIER, NO_ADDRESS, MTU
    silent: bool = False  # towards some peer: what was sent there is lost
    transmitted_packets: int = 0  # data
    transmitted_bytes: int = 0  # payload
    received_packets: int = 0
    received_bytes: int = 0  # payload
    control_transmitted: int = 0  # packets: SACK, NACK, probe, ...
    control_received: int = 0
    retransmitted: int = 0  # packets
    lost: int = 0  # packets sent here and inferred lost
    requeued: int = 0  # packets sent here and asked for again by a NACK
    false_losses: int = 0  # of both, those that had arrived before they were sent again
    marked: int = 0  # packets that arrived ECN-marked
    trimmed: int = 0  # packets that arrived trimmed
    silences: int = 0  # times that a queue pair found the port silent
    downs: int = 0  # times that the port stopped being used for sending
    refused: int = 0  # arrivals that were no packet for this endpoint
    kernel_drops: int = 0  # arrivals dropped because the socket's buffer was full
    send_errors: int = 0  # packets that the kernel refused
    send_stalls: int = 0  # times that the socket had no room
    impaired: int = 0  # arrivals lost, trimmed or corrupted on purpose
    evs: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])  # EVs by state, as in EV_STATES

    @property
    def state_id(self) -> int:
        """Return the state as InfiniBand numbers it: 4 in use, 1 down."""
        return 4 if self.up else 1


class TransportTotals(msgspec.Struct, kw_only=True):
    """Counters of all queue pairs of an endpoint, those that have ended included."""

    timeouts: int = 0  # retransmission timeouts
    inferred_losses: int = 0  # packets declared lost without a NACK
    spurious: int = 0  # packets sent again that had arrived
    duplicates: int = 0  # packets that arrived twice
    out_of_window: int = 0  # packets beyond the receive window
    nacks_sent: int = 0
    nacks_received: int = 0
    probes_sent: int = 0
    probes_answered: int = 0
    malformed: int = 0  # packets that are implausible in their connection


class QpSnapshot(msgspec.Struct, kw_only=True):
    """One queue pair."""

    qpn: int
    state: str = ""
    cause: str = ""  # why it is in ERROR
    peer: list[str] = []  # the peer's address on each plane
    sent_packets: int = 0  # new ones; retransmissions are counted apart
    sent_bytes: int = 0  # payload
    acknowledged: int = 0  # packets known to have arrived
    inflight: int = 0  # packets sent, of which no more is known
    received_packets: int = 0
    retransmitted: int = 0
    waiting: int = 0  # packets that wait for retransmission
    timeouts: int = 0
    retries: int = 0  # attempts that failed since the last progress
    inflight_bytes: int = 0
    cwnd_bytes: int = 0  # of the peer, shared by its queue pairs
    srtt_us: float = 0.0
    base_rtt_us: float = 0.0
    silent_ports: list[int] = []
    timers_us: dict[str, float] = {}  # armed timers, and in how many microseconds each is due
    ev_states: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])  # EVs by state, as in EV_STATES
    evs: list[EvReport] = []  # only if asked for

    @property
    def round_trip(self) -> float:
        """Return the smoothed round trip (s)."""
        return self.srtt_us / 1e6


class EndpointSnapshot(msgspec.Struct, kw_only=True):
    """One endpoint: the software NIC of one process."""

    device: str  # "mrc" and the first plane's address, or what the program calls it
    pid: int
    at: float  # s since 1970
    uptime: float = 0.0  # s
    release: str = ""
    command: str = ""
    algorithm: str = ""  # congestion control
    ports: list[PortSnapshot] = []
    totals: TransportTotals = msgspec.field(default_factory=TransportTotals)
    queue_pairs: list[QpSnapshot] = []
    queue_pair_errors: int = 0  # queue pairs that went to ERROR
    inflight_bytes: int = 0
    abandoned: int = 0  # packets that waited for retransmission when their queue pair ended
    events_dropped: int = 0  # events that nobody took in time
    control_dropped: int = 0  # control packets for which the ring had no room
    unknown_qp: int = 0  # packets for no queue pair of this endpoint
    wrong_source: int = 0  # packets in a peer's name from elsewhere
    telemetry_events: int = 0  # lines of the event log so far

    @property
    def round_trip(self) -> float:
        """Return the longest smoothed round trip of a queue pair (s)."""
        return max((pair.round_trip for pair in self.queue_pairs), default=0.0)

    @property
    def waiting(self) -> int:
        """Return how many packets wait for retransmission."""
        return sum(pair.waiting for pair in self.queue_pairs)

    @property
    def working_queue_pairs(self) -> int:
        """Return how many queue pairs can send."""
        return sum(pair.state == "RTS" for pair in self.queue_pairs)
