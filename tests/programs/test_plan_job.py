"""`mrc plan job`: a table, an object, a page and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

import openmrc
from openmrc.errors import ConfigError
from openmrc.programs.main import app

FEW = ["plan", "job", "--gpus", "4096", "--jobs", "3", "--days", "5", "--networks", "mrc,roce"]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, [*FEW, *words], env={"COLUMNS": "200"})
    assert result.exception is None, result.exception
    return result.stdout


def test_the_networks_share_comes_first() -> None:
    said = run()
    assert said.index("lost to the network") < said.index("goodput")
    assert "MRC loses" in said.splitlines()[-1]


def test_the_object_has_each_network_and_says_where_the_costs_come_from() -> None:
    said = json.loads(run("--json"))
    assert [each["network"] for each in said["networks"]] == ["mrc", "roce"]
    assert said["responses"]["command"] == "python -m bench.jobs.responses"
    assert all(each["commit"] and each["date"] for each in said["responses"]["measured"].values())
    assert set(said["responses"]["measured"]) == {"mrc", "roce"}
    assert {each["basis"] for each in said["inputs"]} == {"published", "inferred", "ours"}
    for each in said["networks"]:
        assert each["won_by_spares_percent"] >= 0
        lost = sum(each["lost_percent"].values())
        assert lost + each["goodput_percent"]["mean"] == pytest.approx(100)


def test_a_small_job_without_a_spare_host_is_told_what_one_would_win() -> None:
    """A hundredth of 32 hosts is none: a failed host is waited for, a day if it is a GPU."""
    found = json.loads(run("--gpus", "256", "--networks", "mrc", "--days", "60", "--json"))["networks"][0]
    assert found["won_by_spares_percent"] > 2
    assert found["goodput_percent"]["mean"] + found["won_by_spares_percent"] > 97


def test_the_folder_has_a_page_and_a_picture_for_slides(tmp_path: Path) -> None:
    run("--out", str(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Where the time goes" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    picture = ET.parse(tmp_path / "out" / "network.svg").getroot()
    assert picture.tag.endswith("svg")
    assert json.loads((tmp_path / "out" / "job.json").read_text())["question"]["gpus"] == 4096


def test_deep_says_where_the_answer_turns_and_the_best_policies_in_words(tmp_path: Path) -> None:
    said = run("--deep", "--jobs", "1", "--days", "1", "--networks", "mrc,roce_adaptive", "--out", str(tmp_path))
    assert "RoCE with adaptive routing by" in said or "RoCE with adaptive routing leads MRC by" in said
    assert "Best policy for each network" in said
    assert "What moves the answer most" in said
    assert ET.parse(tmp_path / "sensitivity.svg").getroot().tag.endswith("svg")
    assert "checkpoint interval" in said
    page = (tmp_path / "report.html").read_text().split("Question and policy")[0]
    for text in (said, page):
        assert "roce_adaptive" not in text
        assert "checkpoint_s" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--days", "-1"], "days = -1; more than 0"),
        (["--restart-s", "-5"], "restart-s = -5; 0 to"),
        (["--networks", "mrc,token-ring"], "network 'token-ring' was not measured"),
        (["--checkpoint-s", "1", "--pause-s", "9"], "the job would only write"),
        (["--spares", "3"], "spares = 3"),
        (["--gpus", "-4"], "gpus = -4"),
        (["--most-lost", "5"], "does not cover nic_link_5 of mrc with all_reduce"),
        (["--networks", " , "], "--networks: ' , ' names none"),
        (["--networks", "mrc,mrc"], "networks = mrc, mrc; expected one or more, each once"),
        (["--threads", "100000"], "threads = 100000; 1 to 65536 is allowed"),
        (["--jobs", "999999999999"], "jobs = 999999999999; 1 to 100000 is allowed"),
        (["--out", __file__], "is a file; expected a folder"),
    ],
)
def test_bad_input_is_refused_in_one_line(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, [*FEW, *words])
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)


@pytest.mark.parametrize(("words", "said"), [([], ""), (["--json"], '{"ok":false,"error":"interrupted"}\n')])
def test_ctrl_c_is_one_line(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a forecast with threads: the batches that wait do not begin."""
    begun = []

    def interrupted(*_: Any) -> int:
        begun.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr("openmrc.planner.forecast.run_jobs", interrupted)
    result = CliRunner().invoke(app, [*FEW, "--jobs", "1000", "--threads", "2", *words])
    assert (result.exit_code, result.stdout, result.stderr) == (130, said, "mrc: interrupted\n")
    assert len(begun) < 100 / 2


def test_python_gets_the_same_as_frames() -> None:
    pytest.importorskip("polars")
    month = openmrc.job(4096, networks=("mrc", "roce"), days=5, jobs=3)
    assert month.networks["network"].to_list() == ["mrc", "roce"]
    assert len(month.jobs) == 6
    assert {"nic_link", "gpu"} <= set(month.causes["cause"])
    assert month.outcome["networks"] == json.loads(run("--json"))["networks"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"gpus": 4096.5}, "gpus = 4096.5; a whole number is expected"),
        ({"networks": ()}, "networks = ; expected one or more"),
        ({"nics_per_host": 0}, "nics-per-host = 0; 1 to 1024 is allowed"),
        ({"on": "moon"}, "on = 'moon'; expected threads or ray"),
        ({"infant": "x"}, "infant = 'x'; a number is expected"),
    ],
)
def test_python_is_told_as_much(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        openmrc.job(**{"gpus": 4096, "days": 1, "jobs": 1, **asked})
    assert str(refused.value).startswith(said)


SIMAI = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 8 ga: 1 all_gpus: 8 pp_comm: 0.0
2
attention -1 500000 ALLGATHER 1000000 300000 REDUCESCATTER 1000000 200000 ALLREDUCE 40000000 100
moe\t-1\t100000\tALLTOALL_EP\t8000000\t100000\tNONE\t5\t100000\tALLGATHER_DP_EP\t600\t0
"""


def test_what_a_step_exchanges_may_come_from_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "step.txt"
    file.write_text(SIMAI)
    said = json.loads(run("--trace", str(file), "--json"))
    assert said["question"]["model"] == "trace step.txt"
    groups = said["question"]["groups"]
    assert [each["collective"] for each in groups] == ["all_reduce", "all_to_all"]
    assert all(0 < each["share"] < 1 and each["source"].startswith("step.txt") for each in groups)


def test_a_trace_that_moves_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "step.goal"
    file.write_text("num_ranks 1\nrank 0 {\na: calc 100\n}\n")
    result = CliRunner().invoke(app, [*FEW, "--trace", str(file)])
    assert "moves nothing between NICs" in str(result.exception)
