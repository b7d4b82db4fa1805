"""Endpoints on hosts that have been up for long, and endpoints that are open for long."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.live_pair import joined
from openmrc.engine.state.clock import WRAPS
from openmrc.live.datapath.loop import attendance
from openmrc.verbs import Context

ROOT = Path(__file__).parents[3]
DAY = 86_400

WORK = """
import time
from harness.live_pair import joined
with joined(size=1 << 14) as pair:
    pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
    busy, began = time.process_time(), time.monotonic()
    time.sleep(1)
    busy = (time.process_time() - busy) / (time.monotonic() - began)
    pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
    print(time.clock_gettime(time.CLOCK_MONOTONIC) / 86400, busy)
"""


@pytest.mark.parametrize("days", [54, 107, 3000])  # 2^62 ps, 2^63 ps, eight years
def test_the_uptime_of_the_host_does_not_matter(days: int) -> None:
    namespace = ["unshare", "--time", "--fork", "--monotonic", str(days * DAY)]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("time namespaces need root and unshare of util-linux 2.36")
    done = subprocess.run(
        [*namespace, sys.executable, "-c", WORK], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    uptime, busy = map(float, done.stdout.split())
    assert uptime >= days
    assert busy < 0.5, "an idle pair keeps a processor busy"


def age(context: Context) -> None:
    """Make an endpoint as if it had been opened so long ago that its clock must be set back now."""
    runtime = context.nic.runtime
    by = (attendance.OLD - runtime.now()) // WRAPS * WRAPS + WRAPS
    within(20, lambda: runtime.set_clock_back(-by))


def within(seconds: float, happens: Callable[[], bool]) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_an_endpoint_lives_on_under_traffic_when_its_clock_is_set_back() -> None:
    with joined(size=1 << 14) as pair:
        ours, theirs = pair.ends
        for turn in range(40):
            for context in pair.contexts if turn % 10 == 5 else ():
                age(context)
            ours.write(pair.regions[0], ours.remote.regions[0], timeout=20)
            theirs.write(pair.regions[1], theirs.remote.regions[0], timeout=20)
        within(20, lambda: all(context.nic.runtime.now() < attendance.OLD for context in pair.contexts))
        late = max(end.qp.counters().timeouts for end in pair.ends)  # a busy host is; clocks are set back 4 times
        assert late < 3


def test_steps_of_impairments_follow_a_clock_that_is_set_back() -> None:
    with joined(size=1 << 14) as pair:
        pair.contexts[1].impair("[{at: 0s, loss: 100%}, {at: 300ms, loss: 0%}]")
        age(pair.contexts[1])
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
