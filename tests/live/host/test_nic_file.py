"""A NIC file's tuning follows from the rate and the round trip that it states."""

from __future__ import annotations

from openmrc.engine.state.params import Settings
from openmrc.live.host.nic_file import NicFile


def nic(link_gbps: float, base_rtt_us: float) -> NicFile:
    return NicFile(
        name="h0",
        planes=["fcbb:bb00::1"],
        carriers=[{}],
        link_gbps=link_gbps,
        base_rtt_us=base_rtt_us,
        target_delay_us=10.0,
        trimming=True,
    )


def test_a_slow_link_is_reported_on_several_times_a_round_trip() -> None:
    settings = nic(0.6, 500).settings(4096)
    assert settings.sack_threshold == settings.bdp // 8 < 5000


def test_a_fast_link_is_reported_on_as_usual() -> None:
    assert nic(800, 12).settings(4096).sack_threshold == Settings.sack_threshold
