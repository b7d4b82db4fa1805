"""The connections over which ranks notice that others live."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from openmrc.live.objects.server import MOST
from openmrc.train.errors import RendezvousError
from openmrc.train.links.liveness import ControlListener, Dialler

PLANES = ["127.0.0.1"]


def wait(is_met: Callable[[], bool], failure: Callable[[], str]) -> None:
    """Wait as a meeting does that has a minute."""
    deadline = time.monotonic() + 60
    while not is_met():
        assert time.monotonic() < deadline, failure()
        time.sleep(0.01)


def test_more_ranks_than_a_server_greets_at_once_dial_before_the_first_is_accepted() -> None:
    """Rank 0 accepts when all ranks are ready: none of them may be dropped meanwhile, as a surplus or otherwise."""
    callers = MOST + 16
    listener = ControlListener(PLANES, callers)
    dialled = [Dialler(rank).dial(PLANES, listener.port, listener.nonce) for rank in range(1, callers + 1)]
    try:
        assert None not in dialled
        accepted = listener.accept(range(1, callers + 1), wait)
        assert sorted(accepted) == list(range(1, callers + 1))
        for each in accepted.values():
            each.close()
    finally:
        listener.close()
        for channel in dialled:
            if channel is not None:
                channel.close()


def test_a_rank_that_is_slow_to_greet_is_waited_for_as_long_as_the_group_meets() -> None:
    """A starved process greets late: a limit of its own would drop callers, who would take this rank for dead."""

    def until_over(is_met: Callable[[], bool], failure: Callable[[], str]) -> None:
        assert not is_met()
        raise RendezvousError(failure())

    listener = ControlListener(PLANES, 2)
    try:
        with pytest.raises(RendezvousError, match=r"ranks \[1, 2\] dialled"):
            listener.accept([1, 2], until_over)
    finally:
        listener.close()
