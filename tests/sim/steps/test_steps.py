"""A job whose equal steps are simulated once, beside one whose every step is."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.sim.results.summary import summary as run_summary
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import simulate
from openmrc.sim.steps.course import disturbances, figures, summary
from openmrc.sim.steps.job import run_steps

HTSIM = {"header": 64, "trim_size": 64, "control_size": 64}  # bytes
LINK = "p0-t0-1<>p0-t1-2"


def job(name: str = "mrc", steps: int = 40, faults: tuple[dict[str, Any], ...] = (), **more: Any) -> Scenario:
    """Return a job of 16 NICs: 100 us of computation and a ring all-reduce."""
    wanted = {
        "name": "steps",
        "fabric": {
            "name": "16",
            "hosts": {"count": 16},
            "planes": [{"count": 2, "host_gbps": 200, "t0": {"down": 4, "up": 4}, "t1": {}}],
        },
        "transport": {"name": name, "qps": 2 if name.startswith("roce") else 1, "settings": HTSIM},
        "workloads": [
            {"kind": "training_step", "steps": steps, "compute": "150us", "jitter": 0.01,
             "collectives": [{"kind": "ring_all_reduce", "size": "400KiB", "group": 4, "placement": "strided"}]}
        ],
        "faults": list(faults),
        **more,
    }  # fmt: skip
    return msgspec.convert(wanted, Scenario)


@pytest.mark.parametrize("transport", ["mrc", "uet"])
def test_the_job_takes_as_long_as_one_whose_every_step_is_simulated(transport: str) -> None:
    wanted = job(transport, faults=({"at": "2.03ms", "for": "1.5ms", "down": LINK},))
    course = run_steps(wanted)
    plain = run_summary(simulate(wanted))["step_us"]["each"]
    assert course.steps == len(plain) == 40
    assert course.simulated < 30
    assert course.took / 1e6 == pytest.approx(sum(plain), rel=0.01)


def test_a_job_whose_cost_depends_on_where_faults_come_is_simulated_without_a_break() -> None:
    """RoCE waits a millisecond for a lost packet: a third of this job, or nothing."""
    wanted = job("roce", faults=({"at": "2.03ms", "for": "1.5ms", "down": LINK},))
    course = run_steps(wanted)
    plain = simulate(wanted)
    assert course.simulated == course.steps == 40
    assert [each.took for each in course.stretches] == np.diff(
        plain.results.finished[plain.work.marks["step"]], prepend=0
    ).tolist()
    assert sum(each.repaired for each in course.stretches) == plain.results.counters["retransmitted"] > 0
    assert course.note.endswith("every step was simulated")
    assert summary(course)["disturbances"]


def test_what_hosts_take_before_a_step_of_a_collective_comes_again_in_each_step() -> None:
    plain = job(steps=10)
    slow = msgspec.structs.replace(plain, workloads=(msgspec.structs.replace(plain.workloads[0], step_time="10us"),))
    course = run_steps(slow)
    assert course.simulated < 10
    assert course.took / 1e6 == pytest.approx(sum(run_summary(simulate(slow))["step_us"]["each"]), rel=0.01)
    assert course.took / 1e6 == pytest.approx(run_steps(plain).took / 1e6 + 10 * 6 * 10, rel=0.02)  # rings of four


def test_a_job_of_rare_faults_leaves_steps_out_on_one_path_too() -> None:
    course = run_steps(job("roce", steps=20_000, faults=({"at": "2.03ms", "for": "1.5ms", "down": LINK},)))
    assert course.simulated < 100
    assert course.note == ""


def test_every_step_has_its_fault_at_the_same_place_of_the_step() -> None:
    """With all steps simulated, the course is that of the plain run, step by step."""
    wanted = job(steps=20, faults=({"at": "1.03ms", "for": "1ms", "loss": "20%", "on": LINK},))
    course = run_steps(wanted, leave_out=False)
    plain = run_summary(simulate(wanted))["step_us"]["each"]
    ours = np.array([each.took for each in course.stretches]) / 1e6
    assert np.delete(ours, range(5, 12)) == pytest.approx(np.delete(plain, range(5, 12)), rel=0.06)
    assert ours == pytest.approx(np.array(plain), rel=0.15), "one more packet lost in the same step"
    changed = [number for number, each in enumerate(course.stretches) if each.changes]
    begins = np.cumsum([0.0, *ours])
    assert changed == [int(np.searchsorted(begins, at) - 1) for at in (1030.0, 2030.0)]


def test_lost_acknowledgements_of_a_finished_step_cost_the_next_one_nothing() -> None:
    """RoCE's senders wait a millisecond for them, longer than a computation: the job's clock stands meanwhile."""
    calm = run_steps(job("roce", steps=12), leave_out=False)
    over = calm.stretches[7].begins / 1e9 - 0.0005  # ms, half a microsecond before step 6 ends
    loss = {"at": f"{over:.6f}ms", "for": "1.5us", "loss": "100%"}
    lossy = run_steps(job("roce", steps=12, faults=(loss,)), leave_out=False)
    assert lossy.late > 500e6
    assert lossy.took == pytest.approx(calm.took, rel=0.005)


def test_a_billion_steps_take_as_long_as_a_few() -> None:
    course = run_steps(job(steps=1_000_000_000, until="3600s"))
    assert course.simulated <= 12
    assert course.took == pytest.approx(3600e12, rel=1e-6)


def test_the_course_is_the_same_on_any_number_of_threads() -> None:
    wanted = job(faults=({"at": "2ms", "for": "1ms", "down": LINK},))
    one, two = run_steps(wanted, threads=1), run_steps(wanted, threads=2)
    assert [each.took for each in one.stretches] == [each.took for each in two.stretches]


def test_a_fault_is_reported_with_its_cost() -> None:
    wanted = job(faults=({"at": "2ms", "for": "2ms", "rate": "20Gbps", "on": "h1 port 0"},))
    course = run_steps(wanted)
    (found,) = disturbances(course)
    told = figures(course, found)
    assert told["changes"] == 4
    assert told["cost_us"] > 10 * told["uncertain_us"]
    assert 8 <= told["steps"] <= 20
    assert summary(course)["lost_us"] == told["cost_us"]


def test_a_job_whose_network_is_gone_stops_and_says_which_connection() -> None:
    wanted = job("roce", faults=({"at": "1ms", "down": "h3 port 0"}, {"at": "1ms", "down": "h3 port 1"}))
    course = run_steps(wanted)
    assert course.stopped.startswith("connection from NIC ")
    assert course.steps < 40


def test_the_job_ends_at_its_limit() -> None:
    course = run_steps(job(steps=1_000, until="10ms"))
    assert course.steps < 1_000
    assert 10e9 <= course.took < 10.5e9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workloads": [{"kind": "permutation", "size": 1000}]}, "one of kind training_step"),
        ({"transport": {"name": "datagrams"}}, "datagrams"),
        ({"capture": {"hosts": [1]}}, "capture"),
        (
            {"workloads": [{"kind": "training_step", "steps": 2, "compute": "1us", "collectives": [
                {"kind": "permutation", "size": 1000}]}]},
            "10 round trips",
        ),
        (
            {"workloads": [{"kind": "training_step", "start": "5us", "compute": "500us", "collectives": [
                {"kind": "permutation", "size": 1000}]}]},
            "the first step begins at 0us",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job_of_equal_steps_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run_steps(job(**change))
