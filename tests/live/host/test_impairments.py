"""Fault schedules on what arrives: overlapping ones, and more than one at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.errors import ConfigError
from openmrc.faults import Schedule
from openmrc.live.host.impairments import Impairments
from openmrc.units import NEVER, PS_PER_MS


@pytest.fixture
def runtime() -> Any:
    planes = [SimpleNamespace(random=0) for _ in range(2)]
    return SimpleNamespace(
        sockets=SimpleNamespace(addresses=["a", "b"]),
        datapath=SimpleNamespace(planes=planes),
        nic=SimpleNamespace(step_at=NEVER),
    )


def test_a_second_schedule_neither_ends_nor_hides_the_spells_of_the_first(runtime: Any) -> None:
    impairments = Impairments(runtime, seed=1)
    impairments.begin(Schedule.parse("for: 30ms, down: plane 0"), 0)
    impairments.begin(Schedule.parse("for: 10ms, down: all"), 10 * PS_PER_MS)
    seen = []
    for ms in (10, 20, 30):
        impairments.advance(ms * PS_PER_MS)
        seen.append([bool(plane.down) for plane in runtime.datapath.planes])
    assert seen == [[True, True], [True, False], [False, False]]
    assert runtime.nic.step_at == NEVER


def test_an_unknown_plane_is_refused_before_anything_is_done(runtime: Any) -> None:
    impairments = Impairments(runtime, seed=1)
    with pytest.raises(ConfigError, match="plane 2"):
        impairments.begin(Schedule.parse("down: plane 0; down: plane 2"), 0)
    assert not hasattr(runtime.datapath.planes[0], "down")
