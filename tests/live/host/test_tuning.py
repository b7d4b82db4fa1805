"""The window on a network far slower than the constants assume: nothing marks or trims there, a full queue drops."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.live.host.in_namespace import needs_namespaces, run

SLOW = "tc qdisc add dev lo root tbf rate 40mbit burst 70000 latency 40ms"
MOST_SENT_AGAIN = 0.05  # of all packets; it was half of them when only the constants bounded the window
LEAST_GOODPUT = 0.6  # of the rate

TRANSFER = f"""
import time
subprocess.run({SLOW!r}.split(), check=True)
from openmrc.verbs import ContextAttr
from harness.live_pair import joined

attr = ContextAttr(max_qp=2, max_peers=2, max_mr=8, evs_per_plane=4, seed=1)
with joined(planes=1, attr=attr, size=1 << 20) as pair:
    end, region = pair.ends[0], pair.regions[0]
    target = end.remote.regions[0]
    began = time.monotonic()
    for _ in range(12):
        end.write(region, target, timeout=60)
    mbps = 12 * region.length * 8 / (time.monotonic() - began) / 1e6
    counters = end.qp.counters()
share = counters.retransmitted / (counters.sent_packets + counters.retransmitted)
assert share < {MOST_SENT_AGAIN}, f"{{share:.0%}} sent again at {{mbps:.0f}} Mb/s"
assert mbps > {LEAST_GOODPUT} * 40, f"{{mbps:.0f}} Mb/s, {{share:.0%}} sent again"
print(f"{{mbps:.1f}} Mb/s, {{share:.1%}} sent again")
"""


def can_be_slow() -> bool:
    """Whether this kernel can limit the rate of an interface."""
    if shutil.which("unshare") is None or shutil.which("tc") is None:
        return False
    return subprocess.run(["unshare", "--net", *SLOW.split()], capture_output=True, check=False).returncode == 0


@pytest.mark.needs("jit")  # interpreted, the endpoint itself carries less than that rate
@needs_namespaces
@pytest.mark.skipif(not can_be_slow(), reason="needs root, tc (iproute2) and the kernel's sch_tbf")
def test_a_slow_network_that_only_drops_carries_few_packets_twice() -> None:
    run(TRANSFER)
