"""`mrc demo` with a small file."""

import time
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from openmrc.errors import ConfigError, MrcError
from openmrc.programs.demo.result import DemoResult
from openmrc.programs.training import collperf_run
from openmrc.programs.training.collperf_run import other_ranks
from openmrc.programs.training.demo_train import check_installed
from tests.programs.processes import run


def test_the_story_ends_well_and_leaves_a_page_but_no_data(tmp_path: Path) -> None:
    code, said, complaints = run(
        "demo",
        "--size",
        "24M",
        "--planes",
        2,
        "--out",
        tmp_path,
        "--seconds",
        1,
        "--json",
        "--impair",
        "down: plane 1; at: 50ms, up: plane 1",
    )
    assert code == 0, complaints
    result = msgspec.json.decode(said, type=DemoResult)
    assert result.ok
    assert result.bytes == 24 << 20
    assert result.single_path is not None
    assert (result.single_path.plane, result.single_path.bytes > 1 << 20) == (1, True)
    assert [(each.plane, each.down, each.up) for each in result.outages] == [(1, 0.0, 0.05)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "simulation", "timeline.svg"]
    assert result.simulation is not None
    assert result.simulation["finished"] == result.simulation["flows"] > 0
    assert "<svg" in (tmp_path / "simulation" / "report.html").read_text()
    drawing = ElementTree.parse(tmp_path / "timeline.svg")
    assert any(each.tag.endswith("rect") for each in drawing.iter())
    assert result.sha256 in (tmp_path / "index.html").read_text()


def test_the_last_line_says_ok_and_what_moved(tmp_path: Path) -> None:
    code, said, complaints = run(
        "demo", "-D", 1, "--planes", 2, "--out", tmp_path, "--impair", "loss: 0.1%", "--no-simulation"
    )
    assert code == 0, complaints
    last = said.splitlines()[-1]
    assert last.startswith("OK ")
    assert int(last.split()[1]) > 8 << 20
    assert last.endswith(" planes in use")


def test_a_network_that_stays_silent_fails_with_the_reason_and_exit_code_1(tmp_path: Path) -> None:
    code, said, _ = run(
        "demo", "--no-tcp", "-D", 2, "--planes", 2, "--out", tmp_path, "--impair", "at: 10ms, down: all",
        "--timeout", 3,
    )  # fmt: skip
    assert code == 1
    assert said.splitlines()[-1].startswith("FAILED: ")
    assert "plane" in said.splitlines()[-1]


@pytest.mark.needs("torch", "sklearn", "jit")
def test_a_training_over_failing_planes_ends_with_the_same_bits_and_a_drawing(tmp_path: Path) -> None:
    code, said, complaints = run("demo", "--train", "--planes", 2, "--out", tmp_path, "--json")
    assert code == 0, complaints
    result = msgspec.json.decode(said)
    assert result["ok"]
    assert result["disturbed"]["loss"] == result["undisturbed"]["loss"]
    assert result["disturbed"]["retransmitted"] > 0
    assert result["disturbed"]["right"] > 0.9
    ElementTree.parse(result["picture"])


def test_other_ranks_may_run_for_any_time_but_must_end_soon_after_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collperf_run, "_END_SECONDS", 2.0)
    with other_ranks(["sh", "-c", "sleep 0.5"], 3):
        time.sleep(0.6)
    begun = time.monotonic()
    with (
        pytest.raises(MrcError, match=r"rank 2 did not exit within 2 s"),
        other_ranks(["sh", "-c", "sleep $((($0 - 1) * 60))"], 3),
    ):
        pass
    with pytest.raises(MrcError, match=r"rank 1 exited with code 1"), other_ranks(["false"], 3):
        pass
    with pytest.raises(KeyError), other_ranks(["sleep", "60"], 2):
        raise KeyError
    assert time.monotonic() < begun + 30


def test_a_training_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"torch and sklearn: pip install torch scikit-learn"):
        check_installed()
