"""What one host may make a controller believe, on counts that are given."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.operations.diagnosis.witnesses import DOUBT_S, DOUBTED_S, PAUSE_S, LoneWord, RowEnds, Suspicions


def test_a_host_that_sends_most_is_weighed_down_with_its_rates_as_they_are() -> None:
    hosts = np.array([0, 1, 2, 2])
    sent, lost = RowEnds(hosts, hosts).limited(
        np.array([100.0, 100.0, 4000.0, 4000.0]), np.array([0.0, 1.0, 1.0, 0.0]), []
    )
    assert sent.sum() == pytest.approx(200 + 400)
    assert lost[2] / sent[2] == pytest.approx(1 / 4000)


def spoken(suspicions: Suspicions, begin: float, seconds: float, contradicted: bool = True) -> float:
    """Let host 7 speak alone against part 3 every 0.1 s; return the time after it."""
    for tick in range(round(seconds / 0.1) + 1):
        suspicions.alone(LoneWord(7, contradicted), 3, begin + tick * 0.1)
    return begin + seconds + 0.1


def test_a_host_is_doubted_that_goes_on_speaking_alone_and_for_a_while() -> None:
    suspicions = Suspicions()
    now = spoken(suspicions, 0.0, DOUBT_S + 0.1)
    assert suspicions.doubted(now) == [7]
    assert suspicions.doubted(now + DOUBTED_S) == []


def test_losses_that_come_apart_doubt_nobody() -> None:
    suspicions = Suspicions()
    for begin in np.arange(20.0, 40.0, 1.0 + 2 * PAUSE_S):
        now = spoken(suspicions, begin, 1.0)
    assert suspicions.doubted(now) == []


def test_a_host_that_nobody_contradicts_is_not_doubted_and_waited_for_no_longer_than_a_liar() -> None:
    suspicions = Suspicions()
    suspicions.alone(LoneWord(7, False), 3, 0.0)
    assert suspicions.waits(0.0)
    now = spoken(suspicions, 0.1, 3 * DOUBT_S, contradicted=False)
    suspicions.alone(LoneWord(7, False), 3, now)
    assert not suspicions.waits(now)
    assert suspicions.doubted(now) == []


def test_a_word_that_others_confirm_doubts_nobody() -> None:
    suspicions = Suspicions()
    now = spoken(suspicions, 0.0, DOUBT_S - 0.5)
    suspicions.confirmed(3)
    now = spoken(suspicions, now, DOUBT_S - 0.5)
    assert suspicions.doubted(now) == []
