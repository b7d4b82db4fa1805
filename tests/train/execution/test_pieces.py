"""A block whose end alone is signalled, in more pieces than the send queue takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.train.execution import run as execution
from openmrc.train.group import Group
from openmrc.train.links.mailbox import SENDS
from openmrc.verbs import QueuePair
from tests.train.ranks import run

PIECE = 4096  # bytes
PIECES = 3 * SENDS  # of each block


@pytest.fixture
def depths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make pieces small; return the number of writes in the send queue after each post."""
    monkeypatch.setattr(execution, "CHUNK", PIECE)
    monkeypatch.setattr(execution, "_MIN_CHUNK", PIECE)
    monkeypatch.setattr(execution, "_MAX_PIECE", PIECE)
    found: list[int] = []
    post = QueuePair.post_send

    def counted(qp: QueuePair, requests: Any) -> None:
        post(qp, requests)
        found.append(qp.outstanding())

    monkeypatch.setattr(QueuePair, "post_send", counted)
    return found


def gather(group: Group) -> None:
    given = np.arange(PIECES * PIECE // 8) + group.rank
    out = np.zeros((group.size, given.size), given.dtype)
    group.all_gather(out, given)
    np.testing.assert_array_equal(out, given - group.rank + np.arange(group.size)[:, None])


def reduce(group: Group) -> None:
    ramp = np.arange(group.size * PIECES * PIECE // 8)
    array = ramp + group.rank
    group.all_reduce(array)
    np.testing.assert_array_equal(array, group.size * ramp + sum(range(group.size)))


def broadcast(group: Group) -> None:
    ramp = np.arange(PIECES * PIECE // 8)
    array = ramp + group.rank
    group.broadcast(array, 0)
    np.testing.assert_array_equal(array, ramp)


@pytest.mark.parametrize("program", [gather, reduce, broadcast])
def test_a_block_in_many_pieces_never_overfills_the_send_queue(program: Any, depths: list[int]) -> None:
    run(3, program, planes="1")
    assert max(depths) < SENDS - 16, "no room is left for frames"


def test_pieces_of_one_block_fill_the_send_queue_as_far_as_they_may(depths: list[int]) -> None:
    run(2, gather, planes="1")
    assert max(depths) > SENDS // 2
