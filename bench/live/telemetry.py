"""What telemetry costs: goodput with a scrape of every counter, and without, in turns in one process.

python -m bench.live.telemetry [--rounds N] [--seconds S] [--every S]
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

from harness.live_pair import Pair, joined
from openmrc.live.ctl.observed import PUBLISHER
from openmrc.telemetry.exposition import openmetrics
from openmrc.verbs import ContextAttr

SIZE = 1 << 20
OUTSTANDING = 4


def goodput(pair: Pair, seconds: float) -> float:
    """Return Gb/s of writes of 1 MiB, four outstanding."""
    here = pair.ends[0]
    source, target = pair.regions[0][:SIZE], here.remote.regions[0]
    done, begun = 0, time.perf_counter()
    for _ in range(OUTSTANDING):
        here.qp.post_write(source, target.addr, target.r_key)
    while (taken := time.perf_counter() - begun) < seconds:
        for _ in here.send_cq.wait(10.0):
            done += SIZE
            here.qp.post_write(source, target.addr, target.r_key)
    open_writes = OUTSTANDING
    while open_writes:
        open_writes -= len(here.send_cq.wait(10.0))
    return 8 * done / taken / 1e9


class Scraper:
    """Scrapes both endpoints of this process every so often, in a thread."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._stop = threading.Event()
        self.took: list[float] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            begun = time.perf_counter()
            openmetrics(PUBLISHER.snapshots())
            self.took.append(time.perf_counter() - begun)


def main() -> None:
    """Print the medians and the share that scrapes cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--every", type=float, default=1.0)
    options = parser.parse_args()
    without, scraped, took = [], [], []
    with joined(planes=4, size=SIZE, attr=ContextAttr()) as pair:
        goodput(pair, 1.0)
        for _ in range(options.rounds):
            without.append(goodput(pair, options.seconds))
            with Scraper(options.every) as scraper:
                scraped.append(goodput(pair, options.seconds))
            took += scraper.took
    ratios = [with_it / plain for with_it, plain in zip(scraped, without, strict=True)]
    cost = 1 - statistics.median(ratios)
    print(
        f"without scrapes {statistics.median(without):.2f} Gb/s, with {statistics.median(scraped):.2f} Gb/s (medians)"
    )
    print(f"cost {100 * cost:.2f} %, ratios {min(ratios):.3f} to {max(ratios):.3f} in {options.rounds} turns")
    print(f"a scrape of two endpoints takes {1000 * statistics.median(took):.1f} ms")


if __name__ == "__main__":
    main()
