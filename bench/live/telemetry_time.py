"""What telemetry costs in processor time, beside a transfer: every counter read, written out and served by HTTP.

    python -m bench.live.telemetry_time [--seconds S] [--rounds N]

Goodput on a shared machine differs by more from turn to turn than telemetry costs (`bench.live.telemetry`). Processor
time does not. Writes of 1 MiB go between two endpoints of one process; another process fetches the metrics once and ten
times a second, by turns.

counters  processor time of the threads while they read the endpoints and write the text, in % of the whole process's
http      that of a request besides, measured on the same server while nothing is sent, times the requests
held      time from the begin to the end of that reading and writing, in % of the turn: in which the transfer's threads
          may have had to wait for the interpreter

The mark is 2 % for counters and http together, at one scrape a second. Exit 1 if it is missed or nothing was scraped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from bench.live.telemetry import SIZE, goodput
from harness.live_pair import Pair, joined
from openmrc.live.ctl.observed import PUBLISHER
from openmrc.telemetry.metrics_server import MetricsServer
from openmrc.verbs import ContextAttr

MARK = 2.0  # %
RATES = (1.0, 10.0)  # scrapes a second
IDLE_REQUESTS = 200
SCRAPER = """
import sys, time, urllib.request
url, every = sys.argv[1], float(sys.argv[2])
while True:
    urllib.request.urlopen(url, timeout=10).read()
    time.sleep(every)
"""


class TimedScrapes:
    """Serves the metrics as `MRC_METRICS` does, and notes what each took."""

    def __init__(self) -> None:
        self.processor: list[float] = []  # s
        self.held: list[float] = []  # s
        self.server = MetricsServer(("127.0.0.1", 0), self._scrape)

    def _scrape(self, plain: bool) -> bytes:
        begun, worked = time.perf_counter(), time.thread_time()
        text = PUBLISHER.scrape(plain)
        self.processor.append(time.thread_time() - worked)
        self.held.append(time.perf_counter() - begun)
        return text


@contextmanager
def scraper(url: str, rate: float) -> Iterator[None]:
    """Another process that fetches the metrics."""
    process = subprocess.Popen([sys.executable, "-c", SCRAPER, url, str(1 / rate)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def http_seconds(scrapes: TimedScrapes) -> float:
    """Return the processor time of a request besides `_scrape`, client's included, as both are in this process."""
    first, worked = len(scrapes.processor), time.process_time()
    for _ in range(IDLE_REQUESTS):
        urllib.request.urlopen(scrapes.server.url, timeout=10).read()
    return (time.process_time() - worked - sum(scrapes.processor[first:])) / IDLE_REQUESTS


def turn(pair: Pair, scrapes: TimedScrapes, rate: float, seconds: float, http: float) -> dict[str, float]:
    """Return the figures of one transfer under scrapes."""
    with scraper(scrapes.server.url, rate):
        goodput(pair, 1.0)  # the scraper has begun
        first, worked, begun = len(scrapes.processor), time.process_time(), time.perf_counter()
        gbps = goodput(pair, seconds)
        process, wall = time.process_time() - worked, time.perf_counter() - begun
        count = len(scrapes.processor) - first
    busy, held = sum(scrapes.processor[first : first + count]), sum(scrapes.held[first : first + count])
    return {"rate": rate, "scrapes": count, "gbps": gbps, "counters": 100 * busy / process,
            "http": 100 * count * http / process, "held": 100 * held / wall}  # fmt: skip


def main() -> None:
    """Print the medians by rate as JSON."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--seconds", type=float, default=5.0)
    given = asked.parse_args()
    with joined(planes=4, size=SIZE, attr=ContextAttr()) as pair:
        scrapes = TimedScrapes()
        http = http_seconds(scrapes)
        turns = [turn(pair, scrapes, rate, given.seconds, http) for _ in range(given.rounds) for rate in RATES]
        scrapes.server.close()
    rows = []
    for rate in RATES:
        mine = [each for each in turns if each["rate"] == rate]
        rows.append(
            {name: round(statistics.median(each[name] for each in mine), 3) for name in mine[0]}
            | {"largest": round(max(each["counters"] + each["http"] for each in mine), 3)}
        )
    print(json.dumps({"http_ms": round(1000 * http, 3), "rounds": given.rounds, "rows": rows}, indent=1))
    if rows[0]["largest"] > MARK or not all(each["scrapes"] for each in turns):
        raise SystemExit(f"more than {MARK} % of the processor time, or nothing was scraped")


if __name__ == "__main__":
    main()
