"""A listener may drop a caller before it is accepted: the group meets all the same, or ends at once and says why."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.objects.exchange import ControlChannel, dial
from openmrc.live.objects.server import MOST
from openmrc.train.errors import RendezvousError
from openmrc.train.group import Group
from openmrc.train.links.introduction import Introductions
from openmrc.train.links.liveness import Dialler
from tests.train.ranks import outcomes


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As many strangers greet behind each caller as a listener keeps: it drops the caller, its oldest."""
    strangers: list[ControlChannel] = []
    connect = Introductions.connect

    def connect_and_crowd(self: Introductions, other: int, planes: Any, port: int, nonce: str, host: str) -> None:
        connect(self, other, planes, port, nonce, host)
        for _ in range(MOST):
            strangers.append(dial(str(PlaneAddress.parse(planes[0]).ip), port, time.monotonic() + 60))
            strangers[-1].tell("nobody")
        readable, _, _ = select.select([self._channels[other]], [], [], 60)
        assert readable, "the listener has not dropped its oldest caller"

    monkeypatch.setattr(Introductions, "connect", connect_and_crowd)
    yield
    for stranger in strangers:
        stranger.close()


def program(group: Group) -> float:
    array = np.full(5, group.rank + 1.0)
    group.all_reduce(array)
    return float(array[0])


@pytest.mark.usefixtures("crowded")
def test_a_rank_that_strangers_crowded_out_dials_again() -> None:
    assert outcomes(2, program, timeout=60.0) == [3, 3]


@pytest.mark.usefixtures("crowded")
def test_all_hear_at_once_that_a_rank_cannot_dial_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dial_once = Dialler.dial

    def refuse_later(self: Dialler, *listener: Any) -> ControlChannel | None:
        monkeypatch.setattr(Dialler, "dial", lambda *_: None)
        return dial_once(self, *listener)

    monkeypatch.setattr(Dialler, "dial", refuse_later)
    waiting, dropped = outcomes(2, program, timeout=60.0)
    assert isinstance(waiting, RendezvousError)
    assert isinstance(dropped, RendezvousError)
    assert str(dropped) == "rank 0 dropped this one and cannot be dialled again"
    assert str(waiting) == f"ranks [1] dialled this one and did not arrive; rank 1: {dropped}"
