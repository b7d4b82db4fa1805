"""Fault schedules on what arrives: overlapping ones, and more than one at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.live_pair import joined
from openmrc.base.faults import Schedule
from openmrc.errors import ConfigError
from openmrc.live.host.impairments import Impairments
from openmrc.units import NEVER, PS_PER_MS
from openmrc.verbs import DeadlineError


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


@pytest.mark.parametrize("text", ["mtu: 1500", "at: 1s, data_loss: 10%"])
def test_what_an_endpoint_cannot_do_is_refused(runtime: Any, text: str) -> None:
    with pytest.raises(ConfigError, match="for simulations"):
        Impairments(runtime, seed=1).begin(Schedule.parse(text), 0)
    Impairments(runtime, seed=1).begin(Schedule.parse("clear: all"), 0)


def test_a_schedule_takes_the_place_of_all_others(runtime: Any) -> None:
    impairments = Impairments(runtime, seed=1)
    impairments.begin(Schedule.parse("down: plane 0; for: 30ms, loss: 50%; at: 10ms, down: plane 1"), 0)
    impairments.begin(Schedule.parse("delay: 1ms, on: plane 1"), 1, replace_all=True)
    impairments.advance(100 * PS_PER_MS)
    planes = runtime.datapath.planes
    assert [(plane.down, plane.loss, plane.delay, plane.impaired) for plane in planes] == [
        (0, 0, 0, False),
        (0, 0, PS_PER_MS, True),
    ]
    assert runtime.nic.step_at == NEVER


def test_an_unknown_plane_is_refused_before_anything_is_done(runtime: Any) -> None:
    impairments = Impairments(runtime, seed=1)
    with pytest.raises(ConfigError, match="plane 2"):
        impairments.begin(Schedule.parse("down: plane 0; down: plane 2"), 0)
    assert not hasattr(runtime.datapath.planes[0], "down")


def test_an_empty_schedule_ends_every_impairment() -> None:
    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        for faults in ("down: all", "for: 100s, loss: 100%"):
            pair.contexts[1].impair(faults)
            with pytest.raises(DeadlineError):
                end.write(pair.regions[0][:10], target, timeout=0.1)
            pair.contexts[1].impair("")
            end.write(pair.regions[0][:10], target, timeout=10)
