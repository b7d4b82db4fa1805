"""Samples of rates and path states over time, taken during a transfer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from openmrc.base.amounts import gbps
from openmrc.programs.endpoint.shares import ev_counts
from openmrc.verbs import Connection, Context

SAMPLE_SECONDS = 0.1
SPARKS = "▁▂▃▄▅▆▇█"
NOTHING = " "


class RateSample(msgspec.Struct, kw_only=True):
    """One sample of about a tenth of a second."""

    at: float  # s since the transfer began, at the end of the sample
    done: int  # bytes that the receiver has consumed so far
    gbps: float  # of these, in this sample
    planes: list[float]  # Gb/s of payload sent on each plane, retransmissions included
    evs: list[dict[str, int]]  # per plane, EV state, or SILENT: number of EVs in it
    retransmitted: int  # packets in this sample


class Sampler:
    """A thread that samples the counters periodically."""

    def __init__(self, context: Context, done: Callable[[], int], on_sample: Callable[[RateSample], None]) -> None:
        self.samples: list[RateSample] = []
        self._context = context
        self._done = done
        self._on_sample = on_sample
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, connection: Connection) -> None:
        """Start sampling; zero is now."""
        self._connection = connection
        self._began = self._last = time.perf_counter()
        self._counters = self._context.plane_counters()
        self._bytes = self._done()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Take a last sample and stop."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._take()
        self._take()  # a short run has only this one

    def _take(self) -> None:
        now, counters, done = time.perf_counter(), self._context.plane_counters(), self._done()
        span, pairs = now - self._last, list(zip(counters, self._counters, strict=True))
        sample = RateSample(
            at=round(now - self._began, 3),
            done=done,
            gbps=round(gbps(done - self._bytes, span), 4),
            planes=[round(gbps(new.sent_bytes - old.sent_bytes, span), 4) for new, old in pairs],
            evs=ev_counts([self._connection.qp]),
            retransmitted=sum(new.retransmitted - old.retransmitted for new, old in pairs),
        )
        self._last, self._counters, self._bytes = now, counters, done
        self.samples.append(sample)
        self._on_sample(sample)


def spark(values: Sequence[float], width: int, most: float) -> str:
    """Draw values as one line of block characters; blank for zero, the full block for `most`."""
    if not values or most <= 0:
        return NOTHING * width
    cells = []
    for column in range(min(width, len(values))):
        first = column * len(values) // min(width, len(values))
        last = (column + 1) * len(values) // min(width, len(values))
        part = values[first : max(last, first + 1)]
        cells.append(_block(sum(part) / len(part) / most))
    return "".join(cells)


def _block(share: float) -> str:
    if share < 0.005:
        return NOTHING
    return SPARKS[min(int(share * len(SPARKS)), len(SPARKS) - 1)]


def returned_after(samples: Sequence[RateSample], plane: int, up_at: float) -> float | None:
    """Return the seconds from `up_at` until the plane carried data again, to the next sample; None if it never did."""
    usual = max((sample.planes[plane] for sample in samples), default=0.0)
    for sample in samples:
        if sample.at >= up_at + SAMPLE_SECONDS / 2 and sample.planes[plane] > usual / 20:
            return max(sample.at - up_at, 0.0)
    return None
