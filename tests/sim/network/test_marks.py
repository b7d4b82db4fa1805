"""ECN marks depend on the queue that a packet leaves; a queue that is short as a whole is not walked to find out."""

from __future__ import annotations

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.sim.loop import window
from openmrc.sim.loop.run import Results
from openmrc.sim.network import ingress
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Network, Routing, Trimming
from openmrc.sim.workloads.traffic import traffic
from tests.sim.small import Blast, leaf_spine


def test_marks_are_the_same_whether_or_not_short_queues_are_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = [0]
    walk = ingress._left_behind

    def counted(network: Network, link: int, channel: int, hop: int) -> int:
        walks[0] += 1
        return walk(network, link, channel, hop)

    monkeypatch.setattr(window, "run_window", window.run_window.py_func)
    monkeypatch.setattr(ingress, "_left_behind", counted)
    quick, few = _run(), walks[0]
    monkeypatch.setattr(ingress, "_is_short", lambda *_: False)
    slow = _run()
    assert quick.links["marked"].sum() > 10
    assert np.array_equal(quick.links["marked"], slow.links["marked"])
    assert np.array_equal(quick.received, slow.received)
    assert few < (walks[0] - few) / 2


def _run() -> Results:
    settings = NetworkSettings(
        trimming=Trimming.NEVER, buffer_bdp=0, routing=Routing.HASH, ecn_low_bdp=0.1, ecn_high_bdp=0.3
    )
    nic = np.arange(1, 13)
    return run(leaf_spine(), traffic(nic, np.arange(12) % 3 + 13, 100_000, nic * 700_000), Blast(settings), seed=3)
