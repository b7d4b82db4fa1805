from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import FailureRate, Failures, Parts, load_parts
from openmrc.fabric.planning.availability import AvailabilityJob, Forecast, Transport, forecast
from openmrc.fabric.planning.design import Design, design
from openmrc.fabric.planning.plot import plot_forecasts

PARTS = load_parts()
NEVER = FailureRate(mtbf_hours=1e15, mttr_hours=1, source="test")


def only(**failures: FailureRate) -> Parts:
    """Return parts of which only some fail."""
    calm = Failures(**{**dict.fromkeys(Failures.__struct_fields__, NEVER), **failures})
    return msgspec.structs.replace(PARTS, failures=calm, host=NEVER)


def built(planes: int) -> Design:
    return design(f"{planes}-plane", 1024, 800, PARTS.switch(51.2), PARTS, planes=planes, tiers=2 if planes > 1 else 3)


def run(
    parts: Parts, transport: Transport, job: AvailabilityJob | None = None, trials: int = 60, planes: int = 8
) -> Forecast:
    return forecast(
        built(planes if transport == "mrc" else 1), parts, transport, job or AvailabilityJob(), trials, seed=7
    )


def test_a_fabric_that_never_fails_loses_nothing() -> None:
    for transport in ("mrc", "roce"):
        found = run(only(), transport, trials=5)
        assert found.goodput == found.network_goodput == 1
        assert found.network_stops == found.host_stops == 0


def test_the_same_seed_gives_the_same_forecast() -> None:
    assert run(PARTS, "mrc", trials=5) == run(PARTS, "mrc", trials=5)
    assert run(PARTS, "roce", trials=5) != forecast(built(1), PARTS, "roce", AvailabilityJob(), 5, seed=8)


def test_a_lost_nic_link_stops_roce_and_slows_mrc() -> None:
    parts = only(nic_link=FailureRate(mtbf_hours=200_000, mttr_hours=4, source="test"))
    mrc, roce = run(parts, "mrc"), run(parts, "roce")
    assert mrc.network_stops == pytest.approx(0, abs=0.2)
    assert mrc.lost_slower > 0
    assert roce.network_stops == pytest.approx(1024 * 720 / 200_000, rel=0.2)
    assert roce.lost_slower == 0


def test_the_cost_of_a_stop_is_half_an_interval_and_a_restart() -> None:
    parts = only(nic_optic=FailureRate(mtbf_hours=100_000, mttr_hours=4, source="test"))
    found = run(parts, "mrc", trials=200)
    expected = 1024 * 720 / 100_000
    assert found.network_stops == pytest.approx(expected, rel=0.1)
    assert found.lost_network_stops == pytest.approx(found.network_stops * (0.25 + 0.25) * 1024, rel=0.05)


def test_one_plane_of_eight_down_all_the_time_costs_its_share() -> None:
    parts = only(nic_link=FailureRate(mtbf_hours=1_000_000, mttr_hours=1e9, source="test"))
    job = AvailabilityJob(days=1000, exposed=0.5)
    found = run(parts, "mrc", job, trials=2)
    pace = 1 - 1 / (0.5 + 0.5 / 0.875)
    assert found.lost_slower / (1024 * 24_000) >= pace * 0.9  # never less than one lost plane once the first is lost


def test_a_flap_shorter_than_the_patience_only_stalls() -> None:
    parts = only(flap=FailureRate(mtbf_hours=20_000, mttr_hours=0.001, source="test"))
    patient, hasty = (
        run(parts, "roce", AvailabilityJob(patience_s=600)),
        run(parts, "roce", AvailabilityJob(patience_s=0)),
    )
    assert patient.network_stops == 0
    assert patient.lost_stalled > 0
    assert hasty.network_stops > 10
    assert hasty.lost_stalled == 0


def test_hosts_fail_alike_and_are_left_out_of_the_network_s_goodput() -> None:
    parts = msgspec.structs.replace(only(), host=FailureRate(mtbf_hours=50_000, mttr_hours=1, source="test"))
    mrc, roce = run(parts, "mrc"), run(parts, "roce")
    assert mrc.host_stops == pytest.approx(1024 * 720 / 50_000, rel=0.1)
    assert roce.host_stops == pytest.approx(mrc.host_stops, rel=0.1)
    assert mrc.network_goodput == roce.network_goodput == 1
    assert mrc.goodput == pytest.approx(720 / (720 + mrc.host_stops * 0.5), rel=0.02)


def test_losing_every_plane_stops_mrc_too() -> None:
    parts = only(nic_link=FailureRate(mtbf_hours=3_000, mttr_hours=1e9, source="test"))
    assert run(parts, "mrc", trials=1, planes=2).network_stops > 0


@pytest.mark.parametrize("wrong", [{"days": 0}, {"exposed": 1.5}, {"checkpoint_minutes": -1}, {"patience_s": -1}])
def test_a_job_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong)).replace("_", "-")):
        run(PARTS, "mrc", replace(AvailabilityJob(), **wrong), trials=1)


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pairs = {"MRC": [run(PARTS, "mrc", trials=2)], "RoCE": [run(PARTS, "roce", trials=2)]}
    plot_forecasts(pairs, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
