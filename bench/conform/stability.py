"""Are verdicts stable? The suite against our endpoint, again and again, beside processes that keep the host busy.

    python -m bench.conform.stability [--runs 100] [--busy 2] [--share 1.0] [--seconds 280] [TEST ...]

Runs the chosen tests (default: all) in one process with one pair of endpoints until `--runs` or `--seconds` are over.
Prints a line for each run, and how often each verdict came. A false `fail` is a defect of the tester: the exit code is
1. With a slow host tests may be inconclusive. `--share 0.25` emulates devices on a machine of a quarter of the speed:
they are stopped, with all their threads, for 7.5 of each 10 ms.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from statistics import median

from harness.busy import busy
from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.devices.process import ProcessDevice
from openmrc.conform.explain import explanation
from openmrc.conform.media.sockets import SocketMedium, own_loopback
from openmrc.conform.results import TestVerdict
from openmrc.conform.suite import SuiteReport, run_suite

ADAPTER = [sys.executable, "-m", "openmrc.conform.adapters.endpoint"]
PERIOD = 0.01  # s


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tests", nargs="*")
    options.add_argument("--runs", type=int, default=100)
    options.add_argument("--busy", type=int, default=2, help="processes that compute without end")
    options.add_argument("--seconds", type=float, default=280, help="begin no run after so long")
    options.add_argument("--share", type=float, default=1.0, help="of the time that devices may run")
    options.add_argument("--adapter", default="", help="another adapter, of both devices")
    given = options.parse_args()
    tests = chosen(shipped_tests(), given.tests)
    found: Counter[TestVerdict] = Counter()
    inconclusive: Counter[str] = Counter()
    begun, runs, loads = time.monotonic(), 0, []
    with (
        busy(given.busy),
        ready(given.adapter.split() or ADAPTER, max(test.wanted.planes for test in tests)) as (medium, devices),
        slowed(devices, given.share),
    ):
        while runs < given.runs and time.monotonic() - begun < given.seconds:
            report = SuiteReport(list(run_suite(tests, medium, devices)))
            runs += 1
            loads.append(os.getloadavg()[0])
            found.update(result.verdict for result in report.results)
            inconclusive.update(each.test.id for each in report.results if each.verdict == TestVerdict.INCONCLUSIVE)
            show_failures(report)
            counts = ", ".join(f"{count} {verdict.value}" for verdict, count in report.counts().items() if count)
            print(f"run {runs}: {counts}, load {loads[-1]:.1f}", flush=True)
    seconds = time.monotonic() - begun
    print(f"{runs} runs of {len(tests)} tests beside {given.busy} busy processes in {seconds:.0f} s", end="")
    print(f", devices at {given.share:.0%} of the speed" if given.share < 1.0 else "")
    print(f"load at the end of each run: {min(loads):.1f} to {max(loads):.1f}, median {median(loads):.1f}")
    print(", ".join(f"{count} {verdict.value}" for verdict, count in found.items()))
    print("inconclusive:", ", ".join(f"{name} {count}" for name, count in inconclusive.most_common(12)) or "none")
    sys.exit(1 if found[TestVerdict.FAIL] else 0)


def show_failures(report: SuiteReport) -> None:
    """Print what failed."""
    for result in report.results:
        if result.verdict == TestVerdict.FAIL:
            print("\n".join(explanation(result)), flush=True)


@contextmanager
def slowed(devices: Sequence[ProcessDevice], share: float) -> Iterator[None]:
    """Let the devices run for a share of each period only."""
    over = threading.Event()
    slowing = threading.Thread(target=_slow, args=(devices, share, over))
    if share < 1.0:
        slowing.start()
    try:
        yield
    finally:
        over.set()
        if share < 1.0:
            slowing.join()


def _slow(devices: Sequence[ProcessDevice], share: float, over: threading.Event) -> None:
    while not over.wait(PERIOD * share):
        pids = [device.pid for device in devices if device.pid is not None]
        _send(pids, signal.SIGSTOP)
        time.sleep(PERIOD * (1.0 - share))
        _send(pids, signal.SIGCONT)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def ready(command: list[str], planes: int) -> Iterator[tuple[SocketMedium, list[ProcessDevice]]]:
    """Start two endpoints and the tester's sockets."""
    devices = [ProcessDevice(command), ProcessDevice(command)]
    medium = SocketMedium(own_loopback(planes), devices)
    try:
        yield medium, devices
    finally:
        for device in devices:
            device.stop()
        medium.close()


if __name__ == "__main__":
    main()
