"""A job's time adds up, and what each kind of failure costs follows from its parts, its table and its policy."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.planner.causes import Situation, failure_kinds
from openmrc.planner.forecast import Forecast, forecast
from openmrc.planner.rows import Spent
from tests.planner.small import PARTS, PLAIN, changed, every, only, situation


def run(made: Situation, jobs: int = 20, days: float = 10, **more: float) -> Forecast:
    return forecast(made, days, jobs, 3, **more)  # type: ignore[arg-type]


def test_the_buckets_add_up_to_the_wall_clock() -> None:
    found = run(situation("mrc", PARTS, nics=8192))
    assert np.allclose(found.spent.sum(axis=1), found.seconds)
    assert (found.goodput < 1).all()


def test_a_job_without_failures_loses_its_checkpoints_alone() -> None:
    found = run(situation("mrc", only(), changed(PLAIN, pause_s=6.0, checkpoint_s=600.0)), jobs=1)
    assert found.share(Spent.CHECKPOINTS) == pytest.approx(6 / 606, rel=0.01)
    assert found.goodput[0] == pytest.approx(600 / 606, rel=0.001)


def test_host_stops_cost_their_downtime_and_half_an_interval() -> None:
    policy = changed(PLAIN, detect_s=60.0, diagnose_s=60.0, restart_s=180.0, checkpoint_s=600.0)
    found = run(situation("mrc", only(gpu=every(10_240, 0)), policy), jobs=60)  # a failure every 10 hours
    stops = found.stops.sum(axis=1).mean()
    assert stops == pytest.approx(24, rel=0.1)
    assert found.share(Spent.HOST_DOWN) * found.seconds == pytest.approx(300 * stops, rel=0.05)
    assert found.share(Spent.HOST_REDONE) * found.seconds == pytest.approx(300 * stops, rel=0.15)
    assert found.network_loss == 0


def test_a_lost_nic_link_slows_mrc_and_stops_roce() -> None:
    parts = only(nic_link=every(1_000_000, 4))
    on_planes, alone = run(situation("mrc", parts)), run(situation("roce", parts))
    assert on_planes.stops.sum() == 0
    assert on_planes.share(Spent.SLOWER) > 0
    assert alone.stops.sum() == alone.counts.sum() > 0
    assert alone.share(Spent.SLOWER) == 0


def test_the_capacity_that_is_left_is_a_limit_below_what_was_measured() -> None:
    made = situation("mrc", only(nic_link=every(1_000_000, 4)))
    (kind,) = (each for each in run(made, jobs=1).kinds if each.name == "nic_link")
    assert kind.step == pytest.approx(1 + 0.2 * (8 / 7 - 1))


def test_a_flap_within_the_retries_stalls_roce_and_a_longer_one_stops_it() -> None:
    parts = only(nic_flap=every(100_000, 10 / 3600))
    found = run(situation("roce", parts, changed(PLAIN, patience_s=20.0)))
    flaps = found.counts.sum()
    assert found.stops.sum() / flaps == pytest.approx(np.exp(-2), abs=0.06)
    assert found.share(Spent.STALLED) > 0
    assert run(situation("roce", parts, changed(PLAIN, patience_s=1e6))).stops.sum() == 0


def test_degraded_hosts_are_swapped_at_stops_while_spares_last() -> None:
    parts = only(nic_link=every(1_000_000, 400), gpu=every(51_200, 0))
    kept = run(situation("mrc", parts, changed(PLAIN, swap=False)))
    swapped = run(situation("mrc", parts, changed(PLAIN, spares=0.5)))
    none = run(situation("mrc", parts, changed(PLAIN, spares=0.0)))
    assert swapped.share(Spent.SLOWER) < 0.6 * kept.share(Spent.SLOWER)
    assert none.share(Spent.SLOWER) == pytest.approx(kept.share(Spent.SLOWER), rel=0.1)


def test_an_eviction_pays_where_degradation_would_cost_more_than_a_restart() -> None:
    parts = only(nic_link=every(1_000_000, 400))
    policy = changed(PLAIN, swap=True, spares=0.5)
    kept, evicted = (run(situation("mrc", parts, changed(policy, evict=evict))) for evict in (False, True))
    assert evicted.share(Spent.PLANNED_DOWN) > 0
    assert evicted.goodput.mean() > kept.goodput.mean()


def test_hosts_without_a_spare_are_waited_for() -> None:
    parts = only(gpu=every(10_240, 2))
    poor, rich = (run(situation("mrc", parts, changed(PLAIN, spares=spares))) for spares in (0.0, 0.1))
    assert poor.share(Spent.HOST_DOWN) > 3 * rich.share(Spent.HOST_DOWN)


def test_two_networks_meet_the_same_host_failures() -> None:
    parts = only(gpu=every(10_240, 1), nic_link=every(1_000_000, 4))
    counts = [run(situation(network, parts)).counts for network in ("mrc", "roce")]
    assert np.array_equal(counts[0][:, -6], counts[1][:, -6])  # gpu: the first of the hosts' six


def test_threads_and_batches_do_not_change_the_numbers() -> None:
    made = situation("mrc", PARTS, nics=4096)
    one, two = (forecast(made, 10, 25, 9, threads) for threads in (1, 2))
    assert np.array_equal(one.spent, two.spent)
    assert np.array_equal(forecast(made, 10, 12, 9).spent, one.spent[:12])


def test_planned_work_on_a_t0_is_free_on_every_network_and_on_none_without_draining() -> None:
    parts = only(t0_maintenance=every(8760, 0.25), t1_maintenance=every(8760, 0.25))
    for planes in (1, 2, 8):
        for drain in (True, False):
            network, policy = "mrc" if planes == 8 else "roce", changed(PLAIN, drain=drain)
            names = {each.name for each in failure_kinds(situation(network, parts, policy, planes=planes))}
            assert ("t0_maintenance" in names) is not drain


def test_early_failures_are_more_frequent() -> None:
    made = situation("mrc", only(gpu=every(10_240, 0)))
    assert run(made, infant=3.0).counts.sum() > 1.5 * run(made).counts.sum()


def test_a_checkpoint_is_complete_before_the_next_begins() -> None:
    """An interval shorter than the time to write one is that time; before, no checkpoint was ever complete."""
    parts = only(gpu=every(10_240, 0))
    short, as_long = (
        run(situation("mrc", parts, changed(PLAIN, lag_s=300.0, checkpoint_s=seconds))) for seconds in (30.0, 300.0)
    )
    assert short.goodput == pytest.approx(as_long.goodput, rel=0.005)  # the first one after a stop comes earlier
    assert short.spent[:, Spent.USEFUL].mean() > 0.5 * short.seconds


def test_rates_that_are_a_mistake_are_refused() -> None:
    with pytest.raises(ConfigError, match="check the rates of the parts, first that of nic_flap"):
        run(situation("mrc", only(nic_flap=every(1e-4, 1))))
    with pytest.raises(ConfigError, match=r"days = 0; more than 0"):
        forecast(situation("mrc", PARTS), 0)
