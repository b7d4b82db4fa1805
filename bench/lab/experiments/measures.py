"""Measurements of a stream under faults: recovery time, interruption, missing bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.lab.experiments.pieces import longest_gap_ms
from bench.lab.experiments.trial import Trial
from openmrc.units import NS_PER_S

_BIN_NS = 50_000_000


@dataclass(frozen=True)
class Measures:
    """The effect of one outage on one stream."""

    kind: str
    whole: bool  # every byte arrived once, in its place
    before_gbps: float
    during_gbps: float  # while the cable was out, from half a second on
    after_gbps: float  # from a second after the return on
    stall_ms: float  # longest time without an arrival from the pull to a second after the return
    quiet_ms: float  # the same before the pull: interruptions by the machine itself
    recover_ms: float  # from the first 50 ms below half of the previous rate until 50 ms reach it; 0: never below;
    # -1: not during the outage, or no traffic before
    reuse_ms: float  # after the return, until nine tenths of the previous rate; -1: not within the run
    missed_mbytes: float  # against an undisturbed stream, from the pull to a second after the return


def measure(trial: Trial, pulled: int, back: int, end: int) -> Measures:
    """Return the measurements; times in ns of the monotonic clock."""
    before = trial.gbps(trial.began, pulled)
    settled = back + NS_PER_S
    expected = before * (settled - pulled) / 8e3
    got = trial.gbps(pulled, settled) * (settled - pulled) / 8e3
    return Measures(
        kind=trial.arrivals.kind,
        whole=trial.is_whole,
        before_gbps=round(before, 4),
        during_gbps=round(trial.gbps(min(pulled + NS_PER_S // 2, back), back), 4),
        after_gbps=round(trial.gbps(settled, end), 4),
        stall_ms=round(longest_gap_ms(trial.times, pulled, settled), 2),
        quiet_ms=round(longest_gap_ms(trial.times, trial.began, pulled), 2),
        recover_ms=_recovers(trial, pulled, back, before / 2),
        reuse_ms=_reaches(trial, back, end, before * 0.9),
        missed_mbytes=round(max(0.0, expected - got) / 1e3, 3),
    )


def _recovers(trial: Trial, pulled: int, back: int, gbps: float) -> float:
    """Return the ms from the pull until the rate, after its drop, is reached again; -1 if it is not.

    Bytes counted just after the pull are not a recovery: iperf3 spreads a tenth of a second evenly.
    """
    if gbps <= 0:
        return -1.0
    fell = next((at for at, rate in _windows(trial, pulled, back) if rate < gbps), None)
    if fell is None:
        return 0.0
    reached = _reaches(trial, fell, back, gbps)
    return reached if reached < 0 else round((fell - pulled) / 1e6 + reached, 2)


def _reaches(trial: Trial, begin: int, end: int, gbps: float) -> float:
    """Return the ms until 50 ms in a row carry a rate; -1 if none do, or if the rate is 0."""
    reached = (at for at, rate in _windows(trial, begin, end) if rate >= gbps > 0)
    at = next(reached, None)
    return -1.0 if at is None else round((at - begin) / 1e6, 2)


def _windows(trial: Trial, begin: int, end: int) -> Iterator[tuple[int, float]]:
    """Yield the start (ns) and the rate (Gb/s) of every 50 ms within begin..end, 5 ms apart."""
    for at in range(begin, end - _BIN_NS + 1, _BIN_NS // 10):
        yield at, trial.gbps(at, at + _BIN_NS)


def timeline(trial: Trial, origin: int, end: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return (seconds after `origin`, Gb/s) in steps of 50 ms."""
    edges = np.arange(trial.began, end, _BIN_NS)
    counts, _ = np.histogram(trial.times, edges)
    return (edges[:-1] - origin) / NS_PER_S, counts * trial.arrivals.piece_bytes * 8 / _BIN_NS
