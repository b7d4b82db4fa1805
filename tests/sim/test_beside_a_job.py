"""Traffic beside a job: another job, checkpoints in its class or in one of their own, stragglers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from openmrc.errors import ConfigError
from openmrc.report.terminal import show
from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import Scenario, load
from openmrc.sim.simulate import simulate

SHIPPED = Path(__file__).parents[2] / "scenarios" / "jobs-and-storage-128.yaml"
SMALL = """
name: beside
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {settings: {evs: 16, second_class_share: 0.1, header: 64, trim_size: 64, control_size: 64}}
workloads:
  - {kind: training_step, hosts: 0-7, steps: 3, compute: 20us, stragglers: 1, straggling: 2.0,
     collectives: [{kind: ring_all_reduce, size: 400KB, placement: strided}]}
  - {kind: training_step, hosts: 8-15, steps: 3, compute: 20us, collectives: [{kind: all_to_all, size: 100KB}]}
  - {kind: checkpoint, hosts: 8-15, storage: 1, size: 400KB, piece: 100KB, start: 10us, every: 150us, times: 2,
     second_class: true}
until: 5ms
"""


def scenario(folder: Path, old: str = "", new: str = "") -> Scenario:
    assert old in SMALL
    path = folder / "beside.yaml"
    path.write_text(SMALL.replace(old, new) if old else SMALL)
    return load(path)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return summary(simulate(scenario(tmp_path_factory.mktemp("beside"))))


def test_each_job_has_its_own_steps(reported: dict[str, Any]) -> None:
    first, second, storage = reported["workloads"]
    assert (first["step_us"]["finished"], second["step_us"]["finished"]) == (3, 3)
    assert "step_us" not in storage
    assert min(first["step_us"]["each"] + second["step_us"]["each"]) > 0
    assert reported["step_us"] == first["step_us"]
    assert len(reported["waited_for"]) == 3


def test_a_straggler_makes_every_step_of_its_job_longer(reported: dict[str, Any], tmp_path: Path) -> None:
    steady = summary(simulate(scenario(tmp_path, "stragglers: 1", "stragglers: 0")))
    for slow, plain in zip(*(each["workloads"][0]["step_us"]["each"] for each in (reported, steady)), strict=True):
        assert 10 < slow - plain < 25, "20 us of computation more"


def test_checkpoints_in_their_own_class_cost_the_job_less(reported: dict[str, Any], tmp_path: Path) -> None:
    mixed = summary(simulate(scenario(tmp_path, "second_class: true", "second_class: false")))
    alone = summary(simulate(scenario(tmp_path, "size: 400KB, piece: 100KB", "size: 1, piece: 1")))
    longest = [each["workloads"][1]["step_us"]["max"] for each in (alone, reported, mixed)]
    assert longest[0] < longest[1] < 0.8 * longest[2], longest
    assert all(each["workloads"][2]["finished"] == each["workloads"][2]["flows"] for each in (reported, mixed))


def test_the_terminal_names_both_jobs(reported: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    show(reported, None)
    printed = capsys.readouterr().out
    assert "step time, us, job 1" in printed
    assert "step time, us, job 2" in printed


def test_a_part_of_a_step_has_no_class_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="second_class belongs to the whole training_step"):
        scenario(tmp_path, "{kind: all_to_all, size: 100KB}", "{kind: all_to_all, size: 100KB, second_class: true}")


def test_the_shipped_scenario_has_two_jobs_a_straggler_and_a_class() -> None:
    first, second, storage = (msgspec.to_builtins(each) for each in load(SHIPPED).workloads)
    assert (first["kind"], second["kind"], storage["kind"]) == ("training_step", "training_step", "checkpoint")
    assert first["stragglers"] == 1
    assert storage["second_class"]
    assert storage["times"] > 1
