"""The lab's stream on the simulator: needs neither root nor namespaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.lab.experiments.pieces import longest_gap_ms
from bench.lab.experiments.simulated import stream
from openmrc.base.faults import Schedule
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.build import build, load
from openmrc.lab.layout import plan_lab
from tests.lab.conftest import fabric_file

MS = 1_000_000
FABRICS = Path(__file__).parents[2] / "scenarios" / "fabrics"


def test_the_simulated_stream_loses_nothing_and_goes_on_over_the_other_plane(tmp_path: Path) -> None:
    lab = plan_lab("twin", usid_plan(build(load(fabric_file(tmp_path, "twin")))))
    trial = stream(lab, "h0", "h3", 0.6, Schedule.parse("at: 200ms, for: 200ms, down: h0 port 0"))
    pulled, back = (step.monotonic_ns for step in trial.steps)
    assert (pulled, back) == (200 * MS, 400 * MS)
    assert trial.is_whole
    assert 0.17 < trial.gbps(0, pulled) < 0.2  # two planes of 100 Mb/s, less what headers take
    assert 0.08 < trial.gbps(pulled + 50 * MS, back) < 0.1
    assert longest_gap_ms(trial.times, pulled, back) < 50


def test_a_pulled_cable_between_switches_interrupts_the_simulated_stream_once() -> None:
    """As in the lab, where a plane has one EV a path: each EV more would have to lose a packet of its own."""
    lab = plan_lab("twin", usid_plan(build(load(FABRICS / "lab-fast.yaml"))))
    pulls = "at: 200ms, for: 200ms, down: p0-t0-00<>p0-t1-00; at: 600ms, for: 200ms, down: p1-t0-00<>p1-t1-01"
    trial = stream(lab, "h0", "h5", 1.0, Schedule.parse(pulls))
    usual = np.median(np.diff(trial.times))
    for step in trial.steps[::2]:
        after = trial.times[(trial.times >= step.monotonic_ns) & (trial.times < step.monotonic_ns + 100 * MS)]
        gaps = after[:-1][np.diff(after) > 1.3 * usual]
        assert len(gaps) > 0
        assert np.ptp(gaps) < 5 * MS  # of one interruption; an EV that is found later is found after a round of all
