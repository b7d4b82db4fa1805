"""What commands ask of a connection."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.apps.endpoint import connection_options
from openmrc.live.api.attributes import USER_TIMEOUT_S

DEVICE: Any = SimpleNamespace(query_device=lambda: SimpleNamespace(max_mtu=4096))


@pytest.mark.parametrize("timeout", [0.0, 5.0, 30.0, 600.0, math.inf])
def test_the_user_timeout_outlasts_the_time_out(timeout: float) -> None:
    assert connection_options(DEVICE, 0, timeout).user_timeout >= timeout


def test_a_short_time_out_leaves_the_usual_user_timeout() -> None:
    assert connection_options(DEVICE, 1024, 0.1).user_timeout == USER_TIMEOUT_S
