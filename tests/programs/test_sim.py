"""`mrc sim` as users call it: what it prints, and how it ends."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openmrc.programs.main import app
from openmrc.sim.sweep import read
from tests.sim.workloads.traces import chakra_writer as et

FABRIC = "name: x\nhosts: {count: 8}\nplanes: [{host_gbps: 100, count: 2, t0: {down: 4, up: 4}, t1: {down: 2}}]\n"


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.yaml"
    path.write_text(FABRIC)
    return path


def mrc(*words: str | Path, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["sim", *map(str, words)])
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done


def test_a_trace_runs_without_a_scenario(tmp_path: Path, fabric: Path) -> None:
    et.write(tmp_path, [[et.collective(0, et.ALL_REDUCE, 1 << 17)] for _ in range(8)])
    done = mrc("run", "--trace", tmp_path / "trace.0.et", "--topo", fabric, "--json")
    summary = json.loads(done.stdout)
    assert (summary["flows"], summary["finished"]) == (112, 112)
    assert summary["workloads"][0]["name"] == "trace.0.et"


def test_a_trace_needs_a_fabric(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["sim", "run", "--trace", str(tmp_path / "x.goal")])
    assert "--trace FILE with --topo FABRIC" in str(done.exception)


def sweep(folder: Path, fabric: Path, text: str) -> Path:
    folder.joinpath("s.yaml").write_text(
        f"name: x\nfabric: {fabric.name}\ntransport: {{name: datagrams}}\n"
        "workloads: [{kind: permutation, size: 20KB}]\n"
    )
    path = folder / "sweep.yaml"
    path.write_text("scenario: s.yaml\n" + text)
    return path


def test_a_sweep_prints_a_table_in_words(tmp_path: Path, fabric: Path) -> None:
    file = sweep(tmp_path, fabric, "vary: {workloads.0.size: [20KB, 40KB]}\n")
    done = mrc("sweep", file, "--out", tmp_path / "out", "--processes", "1")
    assert "workload 1: size" in done.stdout
    assert "completion time, p99 (us)" in done.stdout
    assert "40KB" in done.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "completion time, p99 (us)" in page


def test_a_sweep_whose_points_are_all_refused_says_why(tmp_path: Path, fabric: Path) -> None:
    file = sweep(tmp_path, fabric, "vary: {transport.settings.evs: [1, 2]}\n")
    done = mrc("sweep", file, "--out", tmp_path / "out", "--processes", "1", code=1)
    assert "2 refused: transport: settings: 'evs' is unknown; datagrams accepts" in done.stdout
    done = mrc("sweep", file, "--out", tmp_path / "out", "--processes", "1", "--json", code=1)
    assert list(json.loads(done.stdout)["refused_because"].values()) == [2]


def test_a_sweep_that_plots_what_there_is_not_says_so(tmp_path: Path, fabric: Path) -> None:
    file = sweep(tmp_path, fabric, "vary: {seed: [1, 2]}\nplot: {x: seed, y: fct_us.p9}\n")
    done = CliRunner().invoke(app, ["sim", "sweep", str(file), "--out", str(tmp_path / "out"), "--processes", "1"])
    assert "plot: y: 'fct_us.p9' is not a number of the summary; similar: fct_us.p99" in str(done.exception)


def scenario(folder: Path, text: str, fabric: str = FABRIC) -> Path:
    (folder / "f.yaml").write_text(fabric)
    path = folder / "scenario.yaml"
    path.write_text(f"name: x\nfabric: f.yaml\ntransport: {{name: datagrams}}\n{text}")
    return path


WORK = "workloads: [{kind: permutation, size: 20KB}]\n"


def test_a_fault_after_the_end_gets_a_warning(tmp_path: Path) -> None:
    file = scenario(tmp_path, WORK + "faults: [{at: 1s, down: plane 0}, {at: 1us, rate: 10Gbps}]\n")
    warnings = json.loads(mrc("run", file, "--out", tmp_path / "out", "--json").stdout)["warnings"]
    assert len(warnings) == 1
    assert "faults: 1 fault is after the end of the run at" in warnings[0]
    assert "the first: down plane 0 at 1e+06 us" in warnings[0]


def test_a_run_that_hits_its_time_limit_says_so_on_stderr(tmp_path: Path) -> None:
    work = "workloads: [{kind: training_step, compute: 1us, collectives: [{kind: permutation, size: 2MB}]}]\n"
    file = scenario(tmp_path, work + "until: 20us\n")
    done = mrc("run", file, "--out", tmp_path / "out", code=1)
    assert "8 of 8 flows did not finish within the limit of 20us of simulated time" in done.stderr
    assert "did not finish its steps" in done.stdout


def test_work_that_stays_inside_domains_gets_a_warning(tmp_path: Path) -> None:
    fabric = FABRIC + "scale_up: {gpus: 4, gbps: 3600}\n"
    file = scenario(tmp_path, "workloads: [{kind: ring_all_reduce, size: 64KB, group: 4}]\n", fabric)
    summary = json.loads(mrc("run", file, "--out", tmp_path / "out", "--json").stdout)
    assert summary["goodput_gbps"]["plane"] == [0.0, 0.0]
    assert any("all messages stay inside scale-up domains" in warning for warning in summary["warnings"])


@pytest.mark.parametrize(
    "words",
    [("sim", "run", "none.yaml"), ("sim", "sweep", "none.yaml"), ("sim", "run", "--tm", "x.cm"),
     ("ev", "show", "none.yaml"), ("decode", "none.pcapng"), ("doctor", "--wrong")],
)  # fmt: skip
def test_a_failure_with_json_is_an_object_with_error(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code != 0
    assert json.loads(done.stdout)["error"]


def test_questions_are_listed_and_unknown_ones_refused() -> None:
    assert "mrc sim ask planes" in mrc("ask").stdout
    assert json.loads(mrc("ask", "--json").stdout)["flaps"] == "How many flapping links does a step survive?"
    done = CliRunner().invoke(app, ["sim", "ask", "why"])
    assert "choose from planes, flaps" in str(done.exception)


def test_a_question_is_answered_by_a_table_a_sentence_and_a_page(tmp_path: Path) -> None:
    done = mrc("ask", "roce", "--gpus", "32", "--processes", "1", "--out", tmp_path / "out", "--json")
    result = json.loads(done.stdout)
    assert result["answer"].startswith("MRC, 8 x 100G: steps of ")
    assert len(result["runs"]) == 4
    assert html.escape(result["answer"]) in (tmp_path / "out" / "report.html").read_text()
    again = mrc("ask", "roce", "--gpus", "32", "--processes", "1", "--out", tmp_path / "out")
    assert "step time, mean (us)" in again.stdout
    assert result["answer"] in again.stdout


def test_a_failed_t1_is_shown_as_bars_with_values_and_as_a_file_for_slides(tmp_path: Path) -> None:
    done = mrc("ask", "t1", "--gpus", "32", "--processes", "1", "--out", tmp_path / "out", "--json")
    result = json.loads(done.stdout)
    assert "when a T1 fails" in result["answer"]
    assert result["runs"][0]["name"] == "MRC, 8 x 100G, no fault"
    chart = (tmp_path / "out" / "chart.svg").read_text()
    assert chart.count("<rect x") == 6
    assert "var(--" not in chart


def test_a_question_is_saved_as_files_that_a_sweep_reads(tmp_path: Path) -> None:
    mrc("ask", "evs", "--save", tmp_path / "evs")
    assert len(read(tmp_path / "evs" / "sweep.yaml")[1]) == 12


def test_work_without_messages_gets_a_warning(tmp_path: Path) -> None:
    file = scenario(tmp_path, "workloads: [{kind: background, size: 64KiB, load: 0.1, duration: 0us}]\n")
    summary = json.loads(mrc("run", file, "--out", tmp_path / "out", "--json").stdout)
    assert summary["warnings"] == ["workloads: no message moves bytes, so nothing was measured"]


def test_a_published_figure_without_a_simulated_one_gets_a_warning(tmp_path: Path) -> None:
    published = "published: [{what: a, source: b, of: fct_us.p9}, {what: c, source: d, of: fct_us.p99}]\n"
    file = scenario(tmp_path, WORK + published)
    summary = json.loads(mrc("run", file, "--out", tmp_path / "out", "--json").stdout)
    assert len(summary["warnings"]) == 1
    assert "published: of: 'fct_us.p9' is not a number of the summary; similar: fct_us.p99" in summary["warnings"][0]
