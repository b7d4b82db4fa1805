"""Engine settings for networks of sockets between processes: no trimming, coarse timing with jitter."""

from openmrc.engine.state.params import NOMINAL_OVERHEAD, Settings
from openmrc.live.attributes import SILENT_TIMEOUTS
from openmrc.live.datapath.rows import TRAIN, TRAIN_BYTES
from openmrc.live.host.sockets import Sockets
from openmrc.wire.layout import LONGEST_HEADER

LOSS_DELAY_FLOOR_US = 1_000.0  # round trips between processes are as long when a processor is busy


def settings_for(sockets: Sockets, mtu: int) -> Settings:
    """Return the engine's settings for these sockets.

    A train of packets on one EV is one message, and a system call sends two, so the sender keeps an EV that long; in
    bytes, so that many short packets make a train. The window is bounded by the peer's socket buffers, and by what the
    network has delivered: the rate of the path is not known, as that of an interface says little about it. Round-trip
    times between processes are tens of microseconds of scheduling, and thousands when a processor is busy. Without
    trimming, a lost packet may have met a full buffer, so a path is abandoned only after two consecutive losses. A
    process may be kept from its processor for longer than a timeout, so a peer that answers nothing may take several.
    """
    train = min(TRAIN, TRAIN_BYTES // (mtu + LONGEST_HEADER + 8)) if sockets.segmentation else TRAIN // 4
    return Settings(
        mtu=mtu,
        link_gbps=100.0,
        base_rtt_us=100.0,
        base_rtt_measured=False,
        base_rtt_followed=True,
        trimming=False,
        sack_threshold=128 * 1024,
        answers_together=True,
        ack_every=256,  # a message of 1 MiB; its SACKs say more, and earlier
        ev_burst=2 * train * (mtu + NOMINAL_OVERHEAD),
        loss_delay_floor_us=LOSS_DELAY_FLOOR_US,
        loss_threshold=2,
        silent_timeouts=SILENT_TIMEOUTS,
        reverse_probe_interval_us=5_000.0,
        timestamp_unit=1,
        initial_cwnd=1 << 17,
        max_cwnd=3 << 20,
        bound_by_delivery=True,
        target_delay_us=2_000.0,
    )
