"""The Python API gives what the commands print, as frames, and costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

import openmrc
from openmrc.api import Simulation
from openmrc.errors import ConfigError
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.sweep import run_point

SCENARIO = {
    "name": "small",
    "fabric": {
        "name": "x",
        "hosts": {"count": 8},
        "planes": [{"count": 2, "host_gbps": 100, "t0": {"down": 4, "up": 4}, "t1": {"down": 2}}],
    },
    "transport": {"name": "datagrams"},
    "workloads": [{"kind": "training_step", "steps": 3, "compute": "5us",
                   "collectives": [{"kind": "ring_all_reduce", "size": "100KB"}]}],
    "faults": [{"at": "3us", "for": "2us", "rate": "50Gbps", "on": "h1 port 0"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def done() -> Simulation:
    return openmrc.simulate(SCENARIO)


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'numba', 'polars', 'numpy', 'msgspec'}"
    code = f"import sys, openmrc; print(sorted({heavy} & set(sys.modules)), dir(openmrc))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.startswith("[] ")
    assert "'simulate'" in said


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        openmrc.simulat  # noqa: B018


def test_frames_hold_what_the_summary_says(done: Simulation) -> None:
    assert repr(done) == "<Simulation 'small': datagrams, 336 of 336 flows>"
    assert done.is_complete
    assert len(done.flows) == done.summary["flows"]
    assert done.flows["fct_us"].max() == pytest.approx(done.summary["fct_us"]["max"], abs=1e-5)
    assert done.steps["took_us"].to_list() == done.summary["step_us"]["each"]
    assert done.faults["what"].to_list() == ["rate 50Gbps h1 port 0", "clear h1 port 0"]
    assert done.samples["data_packets"].sum() > 0
    assert len(done.links) == len(done.run.topology.link_source)
    assert done.links["dropped"].sum() == done.summary["packets"]["dropped_full_queue"]
    assert (len(done.paths.columns), len(done.windows)) == (1, 0)  # datagrams have neither


def test_a_run_writes_its_folder_report_and_timeline(done: Simulation, tmp_path: Path) -> None:
    assert done.write(tmp_path / "out") == []
    done.write_report(tmp_path / "r.html")
    done.write_timeline(tmp_path / "t.json")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"summary.json", "flows.parquet", "report.html"}
    assert (tmp_path / "t.json").stat().st_size > 1000


def test_the_same_scenario_as_mapping_file_and_object_runs_alike(
    done: Simulation,
    tmp_path: Path,
) -> None:
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SCENARIO))
    again = openmrc.simulate(tmp_path / "s.yaml")
    assert isinstance(again.scenario, Scenario)
    assert again.flows.equals(done.flows)
    assert openmrc.simulate(again.scenario).flows.equals(done.flows)


def test_a_wrong_scenario_names_the_field() -> None:
    with pytest.raises(ConfigError, match=r"scenario: Object contains unknown field `seeds`"):
        openmrc.simulate({**SCENARIO, "seeds": 1})


def test_a_sweep_is_one_frame_with_a_row_a_run(tmp_path: Path) -> None:
    frame = openmrc.sweep(
        SCENARIO,
        {"seed": [1, 2]},
        together=[{"fabric.planes.0.count": [2, 4], "fabric.planes.0.host_gbps": [100, 50]}],
        folder=tmp_path / "kept",
        processes=1,
    )
    assert frame.select("seed", "fabric.planes.0.count", "planes").rows() == [
        (1, 2, 2),
        (1, 4, 4),
        (2, 2, 2),
        (2, 4, 4),
    ]
    assert (frame["finished"] == frame["flows"]).all()
    assert len(list((tmp_path / "kept" / "points").iterdir())) == 4


def test_a_point_that_is_refused_is_a_row_with_its_reason() -> None:
    frame = openmrc.sweep(SCENARIO, {"transport.settings.evs": [8]}, processes=1)
    assert "'evs' is unknown" in frame["error"][0]


def test_a_plan_gives_designs_ratios_and_a_fabric_that_runs() -> None:
    comparison = openmrc.plan(16, nic="800G", planes=8)
    assert comparison.designs["name"][0] == "8-plane"
    assert comparison.designs["nics"].to_list() == [16] * len(comparison.designs)
    assert comparison.ratios
    fabric = comparison.fabric()
    ran = openmrc.simulate({**SCENARIO, "fabric": fabric, "faults": []})
    assert ran.summary["planes"] == 8
    with pytest.raises(ConfigError, match="'none' is not among 8-plane"):
        comparison.fabric("none")


def test_a_run_in_another_process_finds_the_same(done: Simulation) -> None:
    summary = run_point(msgspec.json.encode(done.scenario), {})["summary"]
    assert summary["fct_us"] == done.summary["fct_us"]
