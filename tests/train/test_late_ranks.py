"""A rank may leave as soon as its own calls are over: those that come later have what they need of it."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from openmrc.train.errors import AbortedError, RankLostError, RendezvousError
from openmrc.train.execution import executor
from openmrc.train.group import Group
from openmrc.train.links import liveness, mailbox, mesh
from openmrc.train.links.reach import check_planes
from openmrc.verbs import QpState
from tests.train.ranks import outcomes, run

SOON = 0.05  # s


@pytest.fixture(autouse=True)
def _leave_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "CLOSE_SECONDS", SOON)


def test_a_rank_stays_until_the_others_have_what_it_sent() -> None:
    left, is_cut = threading.Event(), threading.Event()

    def program(group: Group) -> float:
        array = np.full(5, group.rank + 1.0)
        group.barrier()
        if group.rank == 1:
            group.context.impair("loss: 100%")
            is_cut.set()
            left.wait(10 * SOON)
            group.context.impair("")
            group.broadcast(array, 0)
        else:
            is_cut.wait(10)
            group.broadcast(array, 0)
            group.close()
            left.set()
        return float(array[0])

    assert run(2, program, timeout=20.0) == [1, 1]


def test_the_others_go_on_when_a_rank_that_has_left_acknowledges_nothing() -> None:
    left = threading.Event()

    def program(group: Group) -> None:
        if group.rank == 0:
            for _ in range(12):
                group.send(np.ones(4), 1)
            group.close()
            left.set()
            return
        left.wait(10)
        if group.rank == 1:
            link = group._executor.endpoint.links[0]
            assert link.network is not None
            link.network.modify(user_timeout=SOON)
            for _ in range(12):
                group.recv(np.zeros(4), 0)  # whose credits go back to nobody
            deadline = time.monotonic() + 10
            while link.qp.state == QpState.RTS and time.monotonic() < deadline:
                group.send(np.ones(4), 2)
            assert link.qp.state == QpState.ERROR
            group.send(np.zeros(4), 2)
            for _ in range(10):  # in which the failed completions are taken
                group.recv(np.ones(4), 2)
                group.send(np.ones(4), 2)
        else:
            array = np.ones(4)
            while array.all():
                group.recv(array, 1)
            for _ in range(10):
                group.send(array, 1)
                group.recv(np.ones(4), 1)

    assert outcomes(3, program, timeout=20.0) == [None] * 3


@pytest.mark.parametrize("shared_memory", [False, True])
def test_a_rank_that_left_before_another_one_looked_has_closed_the_group(
    shared_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "GONE_SECONDS", SOON)
    monkeypatch.setattr(mailbox, "_DEPARTED_SECONDS", 6 * SOON)
    left = threading.Event()

    def program(group: Group) -> None:
        if group.rank == 0:
            group.close()
            left.set()
        else:
            left.wait(10)  # then the announcement and the end of the connection arrive together
            with pytest.raises(RankLostError, match="rank 0 has closed group"):
                group.barrier()

    assert outcomes(2, program, shared_memory=shared_memory) == [None] * 2


def test_the_others_hear_why_a_rank_that_they_have_met_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    has_met = threading.Event()

    def fail_last(links: Any, ours: Any, theirs: Any, has_checked: Any) -> None:
        if has_checked.__self__.rank == 2:
            assert has_met.wait(60)
            raise RendezvousError("no packet reaches it")
        check_planes(links, ours, theirs, has_checked)

    monkeypatch.setattr(mesh, "check_planes", fail_last)

    def program(group: Group) -> None:
        has_met.set()
        group.barrier()

    *others, last = outcomes(3, program, timeout=60.0)
    assert str(last) == "no packet reaches it"
    for other in others:  # rank 0 may still wait for all to have met
        assert isinstance(other, RendezvousError | AbortedError)
        assert "no packet reaches it" in str(other)
        assert "rank 2" in str(other)
