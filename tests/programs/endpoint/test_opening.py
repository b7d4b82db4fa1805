"""What commands ask of a connection."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.engine.state.params import ALGORITHM_NAMES
from openmrc.live.attributes import USER_TIMEOUT_S
from openmrc.live.host.nic_file import NicFile
from openmrc.programs.endpoint.opening import ALGORITHMS, EndpointOptions, connection_options, open_described

DEVICE: Any = SimpleNamespace(query_device=lambda: SimpleNamespace(max_mtu=4096))


@pytest.mark.parametrize("timeout", [0.0, 5.0, 30.0, 600.0, math.inf])
def test_the_user_timeout_outlasts_the_time_out(timeout: float) -> None:
    assert connection_options(DEVICE, 0, timeout).user_timeout >= timeout


def test_a_short_time_out_leaves_the_usual_user_timeout() -> None:
    assert connection_options(DEVICE, 1024, 0.1).user_timeout == USER_TIMEOUT_S


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_a_described_nic_has_the_congestion_control_that_was_asked_for(algorithm: str) -> None:
    nic = NicFile(
        name="h0",
        planes=["::1"],
        carriers=[{"::1": ["::1"]}],
        link_gbps=1.0,
        base_rtt_us=100.0,
        target_delay_us=100.0,
        trimming=True,
    )
    with open_described(nic, EndpointOptions(algorithm=algorithm)) as context:
        assert context.nic.runtime.engine.params[0].algorithm == ALGORITHM_NAMES[ALGORITHMS[algorithm]]
