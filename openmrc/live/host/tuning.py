"""What the engine is told when its network is sockets between processes: no trimming, coarse and jittery time."""

from __future__ import annotations

from openmrc.engine.params import Settings
from openmrc.live.datapath.tables import TRAIN
from openmrc.live.host.sockets import Sockets
from openmrc.wire.layout import LONGEST_HEADER

TRAIN_BYTES = 65_000  # bytes of one UDP_SEGMENT message; the kernel takes 65,507 over IPv4


def settings_for(sockets: Sockets, mtu: int) -> Settings:
    """Return the engine's tuning for these sockets.

    A train of packets on one EV is one message, and two go in one system call: an EV is kept that long.
    The window is bounded by what the peer's socket buffers hold. Round trips between processes are
    tens of microseconds of scheduling, not of wire; thousands, when a processor is busy elsewhere. Where
    nothing is trimmed a lost packet may have met a full buffer: a path is left when two are lost in a row.
    """
    train = min(TRAIN, TRAIN_BYTES // (mtu + LONGEST_HEADER + 8)) if sockets.segmentation else TRAIN // 4
    return Settings(
        mtu=mtu,
        link_gbps=100.0,
        base_rtt_us=100.0,
        base_rtt_measured=False,
        trimming=False,
        sack_threshold=128 * 1024,
        ev_burst=2 * train,
        loss_delay_floor_us=1_000.0,
        loss_threshold=2,
        reverse_probe_interval_us=5_000.0,
        timestamp_unit=1,
        initial_cwnd=1 << 20,
        max_cwnd=3 << 20,
        target_delay_us=2_000.0,
    )
