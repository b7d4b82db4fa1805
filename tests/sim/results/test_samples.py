"""What is recorded of watched connections over time, whatever carries them, and that reports show it around a fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.report.simulation import report
from openmrc.sim.results.samples import COLUMNS, KEPT, LinkSampler
from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate
from openmrc.units import PS_PER_US
from tests.sim.small import leaf_spine

RINGS = """
name: rings
fabric: {name: x, hosts: {count: 8}, planes: [{count: PLANES, host_gbps: 400, t0: {down: 4, up: 4}, t1: {down: 2}}]}
transport: TRANSPORT
workloads: [{kind: ring_all_reduce, size: 8MB}]
faults: [{at: 60us, for: 30us, down: p0-t0-00<>p0-t1-01}]
sampling: {every: 1us, flows: 4}
"""
ROCE = "{name: roce, qps: 4, settings: {timeout_us: 50, reroute_delay_us: 10}}"


def ran(folder: Path, transport: str, planes: int = 1) -> SimulationRun:
    path = folder / "rings.yaml"
    path.write_text(RINGS.replace("TRANSPORT", transport).replace("PLANES", str(planes)))
    return simulate(load(path))


@pytest.fixture(scope="module")
def roce(tmp_path_factory: pytest.TempPathFactory) -> SimulationRun:
    return ran(tmp_path_factory.mktemp("roce"), ROCE)


def test_roce_tells_rates_and_what_is_not_acknowledged_of_message_after_message(roce: SimulationRun) -> None:
    samples = roce.samples
    rate, out = samples.windows["rate_gbps"], samples.windows["inflight_bytes"]
    assert rate.shape == out.shape == (len(samples.at), 4)
    # 14 messages of 1 MB to the same neighbour, one after the other.
    first = roce.results.finished[samples.flows].max()
    assert (rate[samples.at > first] > 0).mean() > 0.7
    assert rate.max() == pytest.approx(4 * 400)  # each of four queue pairs may send at the port's rate
    assert 0 < out.max() <= -(-1_000_000 // 4096) * 4096
    assert (out[rate == 0] == 0).all()
    sender = roce.work.traffic.source  # of a ring, each to one neighbour
    for at, flow in enumerate(samples.flows):
        over = roce.results.finished[roce.work.moving[sender[roce.work.moving] == sender[flow]]].max()
        assert rate[samples.at >= over, at].sum() == 0
        assert over > first


def test_roce_counts_over_time_what_its_summary_counts_at_the_end(roce: SimulationRun) -> None:
    series = roce.samples.series
    for name in ("retransmitted", "timeouts", "naks", "cnps"):
        assert (np.diff(series[name]) >= 0).all()
        assert series[name][-1] <= roce.results.counters[name]
    during = (roce.samples.at > 60 * PS_PER_US) & (roce.samples.at < 400 * PS_PER_US)
    assert series["retransmitted"][during][-1] > series["retransmitted"][during][0]


def test_close_ups_show_rates_of_roce_and_windows_of_mrc(roce: SimulationRun, tmp_path: Path) -> None:
    mrc = ran(tmp_path, "{name: mrc, settings: {evs: 16}}", planes=4)
    both = [report(run, summary(run), {}).split("<h2>Around the faults")[1].split("<h2>")[0] for run in (roce, mrc)]
    assert ["Rates of some connections" in page for page in both] == [True, False]
    assert ["Windows of some connections" in page for page in both] == [False, True]
    assert all("Bytes in flight" in page for page in both)
    assert all("retransmitted" in page for page in both)
    window, out = mrc.samples.windows["cwnd_bytes"], mrc.samples.windows["inflight_bytes"]
    assert window.min() > 0
    assert out.max() > 0


class StillSampler(LinkSampler):
    """A sampler of a network in which nothing happens."""

    def _of_network(self, now: int, network: object) -> dict[str, Any]:
        return {name: np.zeros(len(self._groups), np.int64) for name in COLUMNS}


@pytest.mark.parametrize("window", [1, 13, 50])
def test_samples_of_the_whole_run_are_evenly_apart_however_long_the_windows_are(window: int) -> None:
    sampler = StillSampler(leaf_spine())
    step = window * int(sampler.topology.link_delay.min())
    for now in range(0, 5000 * step, step):
        if now >= sampler.due:
            sampler.take(now, None)  # type: ignore[arg-type]
    apart = np.diff(sampler.samples().overview.at)
    assert KEPT <= len(apart) + 1 < 2 * KEPT
    assert (apart / np.median(apart)).min() > 0.99
    assert (apart / np.median(apart)).max() < 1.6  # where every second one was dropped
