"""How fast are programs of others on the native library, against `mrc perf` and against each other?

    python -m bench.live.native_library              # every question
    python -m bench.live.native_library write lists  # some

Debian's perftest, unmodified, and for loops that poll `native/examples/mrc_bw.c`; both ends on loopback over four
planes. What is compared is measured in turns within one run: a machine that is busy with other work slows both. Each
question prints its figure, its mark, and all values.
"""

from __future__ import annotations

import argparse
import atexit
import operator
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import openmrc
from harness.free_port import free_port

PLANES = ",".join(f"127.0.0.{plane}" for plane in range(1, 5))
MEGABYTE = 1 << 20
AVERAGE, MESSAGE_RATE, TYPICAL = 3, 4, 4  # columns of perftest: MiB/s, million messages/s; us
TRIES, NO_CLOCK = 5, "Can't produce a report"
POLL_RATE, POLL_P999 = 3, 2  # columns of `mrc_bw`: million messages/s; of its `-c`: us
ROOT = Path(__file__).parents[2]
Measure = Callable[[], float]


def perftest(program: str, *options: str, column: int = AVERAGE) -> float:
    """Run a program of perftest at both ends; return a column of its last row.

    Again if it could not find the clock's rate, which it estimates first and which a busy machine upsets.
    """
    for _ in range(TRIES):
        client = run_pair(program, *options)
        if client.returncode == 0:
            rows = [line.split() for line in client.stdout.splitlines() if re.match(r"^ ?\d+ +\d+ ", line)]
            return float(rows[-1][column])
        if NO_CLOCK not in client.stdout + client.stderr:
            break
    raise SystemExit(client.stdout + client.stderr)


def run_pair(program: str, *options: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of perftest at both ends, `before` preloaded before the library; return the client."""
    preloaded = f"{before} {openmrc.get_library()}"
    settings = {**os.environ, "LD_PRELOAD": preloaded, "MRC_PLANES": PLANES, "MRC_EMULATE": "send"}
    if "send" not in program:
        del settings["MRC_EMULATE"]
    command = [program, "-p", str(free_port()), *options]
    server = subprocess.Popen(command, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):  # the server may not listen yet
            client = subprocess.run(
                [*command, "127.0.0.1"], env=settings, capture_output=True, text=True, timeout=120, check=False
            )
            if "Couldn't connect" not in client.stdout + client.stderr:
                break
            time.sleep(0.1)
    finally:
        server.kill()
        server.wait()
    return client


@cache
def built(source: str, *options: str) -> str:
    """Build C of this tree; return its path, gone with this process."""
    made = Path(tempfile.mkdtemp()) / Path(source).stem
    atexit.register(shutil.rmtree, made.parent)
    subprocess.run(["cc", "-O2", str(ROOT / source), *options, "-o", str(made)], check=True)
    return str(made)


def mrc_bw() -> str:
    """Build the bandwidth example against the library."""
    library = Path(openmrc.get_library())
    linked = (str(library), f"-Wl,-rpath,{library.parent}", "-libverbs")
    return built("native/examples/mrc_bw.c", f"-I{openmrc.get_include()}", *linked)


def sent_by_poller() -> float:
    """Return the share of `ib_write_bw`'s calls of sendmmsg that its polling thread makes, the rest the library's."""
    count = built("bench/live/who_sends.c", "-shared", "-fPIC", "-ldl")
    said = run_pair("ib_write_bw", "-s", str(MEGABYTE), "-n", "2000", before=count).stderr
    calls = [int(word) for word in said.split("sendmmsg:")[1].split()]
    return calls[0] / sum(calls)


def polling(*options: str, column: int = POLL_RATE) -> float:
    """Run `mrc_bw` with both ends polling, each with a processor of its own; return a column of its last row."""
    settings = {**os.environ, "MRC_PLANES": PLANES, "MRC_LOG": "off"}
    command = [mrc_bw(), "-p", str(free_port()), "-s", "64"]
    server = subprocess.Popen(["taskset", "-c", "0", *command], env=settings)
    try:
        pinned = ["taskset", "-c", "1", *command, "-o", *options, "127.0.0.1"]
        said = subprocess.run(pinned, env=settings, capture_output=True, text=True, timeout=120, check=True).stdout
        server.wait(timeout=30)
    finally:
        server.kill()
    return float(said.splitlines()[-1].split()[column])


def polling_beside_others(*options: str) -> float:
    """Return p99.9 (us) of the calls of `mrc_poll_cq` while another program wants each of the two processors."""
    with busy_processors(2):
        return polling("-c", *options, column=POLL_P999)


@contextmanager
def busy_processors(count: int) -> Iterator[None]:
    """Keep processors busy, each with a loop."""
    loop = "while :; do :; done"
    loops = [subprocess.Popen(["taskset", "-c", str(number), "sh", "-c", loop]) for number in range(count)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def perf() -> float:
    """Return the MiB/s of `mrc perf` with writes of 1 MiB over four planes."""
    options = ("perf", "--loopback", "--planes", "4", "-s", "1M", "-n", "2000", "--json")
    command = [sys.executable, "-m", "openmrc.programs.main", *options]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    found = re.search(r'"gbps": ?([\d.]+)', said)
    assert found is not None, said[:400]
    return float(found[1]) * 1e9 / 8 / MEGABYTE


def bandwidth(size: int, count: int, *options: str, program: str = "ib_write_bw") -> Measure:
    """Return how to measure the MiB/s of `count` messages of `size` bytes on each queue pair."""
    return partial(perftest, program, "-s", str(size), "-n", str(count), *options)


def small(*options: str) -> Measure:
    """Return how to measure million writes of 64 bytes a second."""
    return partial(perftest, "ib_write_bw", "-s", "64", "-n", "400000", *options, column=MESSAGE_RATE)


def latency(program: str) -> Measure:
    """Return how to measure the typical half of a round trip of 8 bytes (us)."""
    return partial(perftest, program, "-s", "8", "-n", "10000", column=TYPICAL)


@dataclass(frozen=True)
class PerftestQuestion:
    """One figure: the median of a measurement, or its ratio to the median of another."""

    text: str
    mark: str
    unit: str
    measure: Measure
    against: Measure | None = None


WRITES, QUEUE_PAIRS = bandwidth(MEGABYTE, 2000), bandwidth(MEGABYTE, 125, "-q", "16")
QUESTIONS = {
    "write": PerftestQuestion("ib_write_bw 1 MiB / mrc perf", ">= 0.95", "", WRITES, perf),
    "poller": PerftestQuestion("trains that the polling thread sends, of all", ">= 0.95", "", sent_by_poller),
    "queue-pairs": PerftestQuestion("16 queue pairs / one, 1 MiB", ">= 0.85", "", QUEUE_PAIRS, WRITES),
    "same-memory": PerftestQuestion(
        "16 queue pairs / one that writes as much memory", ">= 0.85", "", QUEUE_PAIRS, bandwidth(16 * MEGABYTE, 125)
    ),
    "send": PerftestQuestion(
        "ib_send_bw / ib_write_bw, 64 KiB", ">= 0.5", "",
        bandwidth(65536, 10000, program="ib_send_bw"), bandwidth(65536, 10000),
    ),
    "single": PerftestQuestion("64 B writes posted one by one", ">= 1", "M/s", small()),
    "lists": PerftestQuestion("64 B writes in lists of 32", ">= 1", "M/s", small("-l", "32")),
    "polling": PerftestQuestion(
        "64 B writes of a loop that polls, in lists of 32", ">= 4", "M/s",
        partial(polling, "-n", "2000000", "-t", "512", "-l", "32"),
    ),
    "polling-single": PerftestQuestion(
        "64 B writes of a loop that polls, one by one", ">= 4", "M/s", partial(polling, "-n", "2000000", "-t", "512")
    ),
    "poll-call": PerftestQuestion(
        "p99.9 of a poll beside a busy program", "<= 100", "us", partial(polling_beside_others, "-n", "200000")
    ),
    "write-latency": PerftestQuestion("ib_write_lat 8 B", "<= 40", "us", latency("ib_write_lat")),
    "send-latency": PerftestQuestion("ib_send_lat 8 B", "<= 12", "us", latency("ib_send_lat")),
}  # fmt: skip


def answer(question: PerftestQuestion, turns: int) -> float:
    """Measure in turns, print what was measured and the figure; return the figure."""
    taken, others = [], []
    for _ in range(turns):
        taken.append(question.measure())
        if question.against is not None:
            others.append(question.against())
    # Of ratios, not the ratio of medians: some machines have two speeds, and change between turns.
    figure = statistics.median(map(operator.truediv, taken, others) if others else taken)
    values = " against ".join(" ".join(f"{value:.4g}" for value in each) for each in (taken, others) if each)
    print(f"{question.text}: {figure:.3g} {question.unit or 'x'} (mark {question.mark}; {values})", flush=True)
    return figure


def main() -> None:
    """Answer the questions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)} (default all)")
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    if unknown := set(chosen.questions) - set(QUESTIONS):
        parser.error(f"{', '.join(sorted(unknown))}: no question ({', '.join(QUESTIONS)})")
    for name in chosen.questions or QUESTIONS:
        answer(QUESTIONS[name], chosen.turns)


if __name__ == "__main__":
    main()
