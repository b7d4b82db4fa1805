"""How commands open an endpoint."""

import pytest

from openmrc.engine.state.params import ALGORITHM_NAMES
from openmrc.live.host.nic_file import NicFile
from openmrc.programs.endpoint.opening import ALGORITHMS, EndpointOptions, open_described


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
