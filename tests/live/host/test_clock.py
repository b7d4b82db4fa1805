"""Endpoints on hosts that have been up for long, and endpoints that are open for long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.live.datapath import event_loop
from openmrc.verbs import ClosedError, Context
from tests.live.pair import SMALL, addresses

ROOT = Path(__file__).parents[3]
DAY = 86_400

WORK = """
import time
from tests.live.pair import joined
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


def test_a_context_older_than_its_clock_counts_says_so() -> None:
    with Context(addresses(0, 231, 1, 4), SMALL) as context:
        runtime = context.nic._runtime
        runtime.nic.epoch -= event_loop.LIFETIME // 10**12  # as if it had been opened so long ago
        os.eventfd_write(runtime.wake_fd, 1)
        runtime._thread.join(20)
        with pytest.raises(ClosedError, match="open for 50 days"):
            context.alloc_pd().reg_mr(bytearray(8))
