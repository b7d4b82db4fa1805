"""Figures of an outage from arrivals that are known beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from bench.lab.experiments.measures import Measures, measure
from bench.lab.experiments.pieces import PIECE, Arrivals
from bench.lab.experiments.trial import Trial

SECOND = 1_000_000_000
PULLED, BACK, END = 2 * SECOND, 4 * SECOND, 7 * SECOND


def measured(*flowing: tuple[float, float]) -> Measures:
    """Measure a stream of a piece a millisecond during these times (seconds)."""
    times = np.concatenate([np.arange(begin * SECOND, end * SECOND, SECOND // 1000) for begin, end in flowing])
    times = times.astype(np.int64)
    return measure(Trial(Arrivals(kind="test", sent=len(times), piece_bytes=PIECE), times, 0, []), PULLED, BACK, END)


def test_a_stream_that_flows_on_has_nothing_to_recover_from() -> None:
    figures = measured((0, 7))
    assert (figures.recover_ms, figures.missed_mbytes) == (0, 0)
    assert figures.during_gbps == pytest.approx(figures.before_gbps, rel=0.01)


def test_a_stream_that_stops_and_flows_again_recovers_when_it_flows() -> None:
    assert measured((0, 2), (2.5, 7)).recover_ms == pytest.approx(475, abs=10)  # half of 50 ms carry half the rate


def test_a_stream_that_stays_at_nothing_never_recovers() -> None:
    figures = measured((0, 2), (4.3, 7))
    assert (figures.during_gbps, figures.recover_ms) == (0, -1)
    assert figures.reuse_ms == pytest.approx(300, abs=10)


def test_arrivals_counted_just_after_the_pull_are_no_recovery() -> None:
    assert measured((0, 2.08), (4.3, 7)).recover_ms == -1  # as iperf3 tells them, in tenths of a second


def test_where_nothing_flowed_nothing_recovers() -> None:
    figures = measured((6, 7))
    assert (figures.before_gbps, figures.recover_ms, figures.reuse_ms) == (0, -1, -1)
