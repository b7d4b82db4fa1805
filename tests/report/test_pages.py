"""Pages: planes that hide each other, numbers of faults, links as maps, what steps waited for, comparisons."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from openmrc.report import curves, svg
from openmrc.report.links import link_maps
from openmrc.report.simulation import report
from openmrc.report.svg import Chart, Curve, Mark
from openmrc.report.sweep import comparison_page
from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.results.waits import waited_for
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate
from openmrc.units import PS_PER_US

STEPS = """
name: steps
fabric: {name: x, hosts: {count: 16}, planes: [{count: 8, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {name: datagrams}
workloads:
  - {kind: training_step, steps: 3, compute: 10us, collectives: [{kind: ring_all_reduce, size: 400KB}]}
faults:
  - {at: 3us, down: plane 2}
  - {at: 12us, rate: 1Gbps, on: h5 port 0}
until: 5ms
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimulationRun:
    path = tmp_path_factory.mktemp("pages") / "steps.yaml"
    path.write_text(STEPS.replace("down: plane 2", "rate: 90Gbps, on: plane 2"))
    return simulate(load(path))


def lines(*rates: float) -> list[Curve]:
    x = np.arange(5.0)
    return [Curve(f"plane {at}", x, np.full(5, rate)) for at, rate in enumerate(rates)]


def test_few_planes_are_drawn_one_by_one() -> None:
    drawn, band = curves.of_planes(lines(1, 2, 3, 4))
    assert ([line.label for line in drawn], band) == ([f"plane {at}" for at in range(4)], None)


def test_many_planes_are_a_band_and_those_behind_are_drawn_by_themselves() -> None:
    drawn, band = curves.of_planes(lines(10, 10, 10, 2, 10, 9.5))
    assert [line.label for line in drawn] == ["median of planes", "plane 3"]
    assert band is not None
    assert (band.low.tolist(), band.high.tolist()) == ([2.0] * 5, [10.0] * 5)


def test_numbers_of_faults_do_not_touch() -> None:
    marks = [Mark(at, "down") for at in (0.0, 0.1, 0.2, 5.0, 9.7, 9.8, 9.9, 10.0)]
    drawn = svg.draw(Chart("x", "us", "y", [Curve("a", np.array([0.0, 10.0]), np.array([1.0, 2.0]))], marks))
    written = re.findall(r'<g class="mark"><text x="([\d.]+)"[^>]*>([\d-]+)</text>', drawn)
    assert [text for _, text in written] == ["1-3", "4", "5-8"]
    assert drawn.count("<title>") >= len(marks)


def test_links_are_shown_by_tier_and_direction(run: SimulationRun) -> None:
    maps = list(link_maps(run))
    titles = [re.findall(r"<h3>([^<]+)", each)[0] for each in maps]
    assert titles[:4] == [f"Load of links, {way}" for way in ("nic to t0", "t0 to nic", "t0 to t1", "t1 to t0")]
    assert "Longest queue" in titles[4]
    shares = [float(each) for each in re.findall(r"<title>([\d.]+) % of the rate", "".join(maps))]
    assert len(shares) == 4 * 8 * 16
    assert 0.5 < max(shares) <= 101  # the run is long, as one link is slow


def test_a_step_waited_for_the_host_behind_the_slow_link(run: SimulationRun) -> None:
    waits = waited_for(run.work, run.results, run.topology)
    ends = run.results.finished[run.work.marks["step"]]
    assert [each["step"] for each in waits] == [1, 2, 3]
    assert sum(each["took_us"] for each in waits) == pytest.approx(int(ends[-1]) / PS_PER_US)
    for each in waits:
        assert run.topology.name(int(run.work.traffic.destination[each["flow"]])) == each["host"]
        assert run.results.received[each["flow"]] <= ends[each["step"] - 1]
        assert each["part"] == "ring_all_reduce"
        assert each["behind_us"] >= 0


def test_the_page_names_every_axis_and_fits_small_screens(run: SimulationRun) -> None:
    page = report(run, summary(run), {})
    charts = re.findall(r'<svg [^>]*viewBox="0 0 640 270".*?</svg>', page, re.DOTALL)
    assert len(charts) > 5
    for chart in charts:
        labels = re.findall(r'<text class="label[^>]*>([^<]*)</text>', chart)
        assert "no data" in chart or (len(labels) == 2 and all(labels)), labels
    assert "max-width:640px" in page
    assert "prefers-color-scheme: dark" in page
    assert "What each step waited for" in page


def test_a_comparison_has_a_page(tmp_path: Path) -> None:
    def row(name: str, lost: float | None) -> dict[str, object]:
        step = {"count": 2, "finished": 2, "mean": 10.0, "p50": 9.0, "p99": 11.0, "max": 11.0, "each": [9.0, 11.0]}
        job = {"stopped": False, "finished": True, "at_us": None, "cause": None, "restart": None}
        return {"name": name, "transport": "mrc", "planes": 8, "hosts": 16, "steps": step, "without_faults": step,
                "job": job, "gpu_time_lost_percent": lost, "lost_on_links": 3, "retransmitted": 4, "failed": 0,
                "errors": {"queue_pairs": 0}}  # fmt: skip

    page = comparison_page({"scenarios": [row("a", 1.5), row("b <c>", None)], "differences": ["seed: 1, 2"]})
    assert "1.50 %" in page
    assert "job not finished" in page
    assert "differs: seed: 1, 2" in page
    assert "b &lt;c&gt;" in page
    assert "<c>" not in page
