"""The connections over which ranks notice that others live."""

from __future__ import annotations

from openmrc.live.objects.server import MOST
from openmrc.train.links.liveness import ControlListener, Dialler

PLANES = ["127.0.0.1"]


def test_more_ranks_than_a_server_greets_at_once_dial_before_the_first_is_accepted() -> None:
    """Rank 0 accepts when all ranks are ready: none of them may be dropped meanwhile, as a surplus or otherwise."""
    callers = MOST + 16
    listener = ControlListener(PLANES, callers)
    dialled = [Dialler(rank).dial(PLANES, listener.port, listener.nonce) for rank in range(1, callers + 1)]
    try:
        assert None not in dialled
        accepted = listener.accept(range(1, callers + 1))
        assert sorted(accepted) == list(range(1, callers + 1))
        for each in accepted.values():
            each.close()
    finally:
        listener.close()
        for channel in dialled:
            if channel is not None:
                channel.close()
