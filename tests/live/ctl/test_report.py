"""What the description of a queue pair says about why nothing arrives."""

from __future__ import annotations

import errno

from openmrc.engine.state.machines import QpState
from openmrc.engine.state.tables import Cause
from openmrc.live.ctl.report import describe
from openmrc.units import PS_PER_S
from tests.live.datapath.memory_kernel import endpoint


def test_a_peer_that_answered_to_the_end_and_got_no_data_points_to_the_path_mtu() -> None:
    with endpoint() as here:
        row = here.engine.qps[0]
        row.state, row.cause, row.user_timeout, row.no_progress_since = (
            QpState.ERROR,
            Cause.USER_TIMEOUT,
            PS_PER_S,
            PS_PER_S,
        )
        row.heard_at = PS_PER_S
        assert "path_mtu" not in describe(here.runtime, 0, None)
        row.heard_at += 9 * PS_PER_S // 10
        text = describe(here.runtime, 0, None)
        assert "no packet of 1024 bytes arrives: if the MTU of the path has shrunk" in text
        assert "smaller path_mtu (--mtu), or after giving the planes' interfaces the MTU of the path" in text


def test_packets_that_an_interface_refuses_as_too_long_are_named_with_their_plane() -> None:
    with endpoint() as here:
        here.datapath.planes[1].last_error = errno.EMSGSIZE
        assert "plane 1: packets of 1024 bytes are too long" in describe(here.runtime, 0, None)
