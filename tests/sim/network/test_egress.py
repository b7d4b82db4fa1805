"""What a full egress queue does with the next packet."""

from __future__ import annotations

import pytest

from harness.simulated_runs import run
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Trimming
from tests.sim.small import Blast, incast, leaf_spine

SENDERS = 7
TRIM_SIZE = 64


@pytest.mark.parametrize(("length", "is_trimmed"), [(40, False), (65, False), (128, False), (129, True), (200, True)])
def test_packet_that_trimming_would_hardly_shorten_is_forwarded_whole(length: int, is_trimmed: bool) -> None:
    header = 32
    settings = NetworkSettings(
        mtu=length - header, header=header, trim_size=TRIM_SIZE, trimming=Trimming.EITHER, last_hop_buffer_bdp=0.0001
    )  # one packet
    results = run(leaf_spine(hosts=8, down=8), incast(SENDERS, size=length - header), Blast(settings))
    trimmed = int(results.links["trimmed"].sum())
    assert (trimmed > 0) == is_trimmed
    assert results.links["dropped"].sum() == 0
    lengths = SENDERS * length * 2 - trimmed * (length - TRIM_SIZE)
    assert results.links["arrived_bytes"].sum() == lengths, "no packet has grown"
