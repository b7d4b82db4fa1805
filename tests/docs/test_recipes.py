"""The recipes of the page for contributors: what they name exists, and the first one is followed to its end."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.cli.main import app
from openmrc.sim.workloads import families
from openmrc.sim.workloads.plan import WorkloadHosts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contributing.md").read_text("utf-8").partition("## Recipes")[2]
STEPS = [step for recipe in PAGE.split("### ")[1:] for step in re.split(r"^\d\. ", recipe, flags=re.MULTILINE)[1:]]
QUOTED = re.compile(r"`([^`]+)`")
FILE = re.compile(r"[\w/]+/[\w/.]*")


def files_of(step: str) -> list[Path]:
    return [ROOT / word for word in QUOTED.findall(step) if FILE.fullmatch(word)]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: " ".join(step.split()[:4]))
def test_a_step_names_what_exists(step: str) -> None:
    files = files_of(step)
    for path in files:
        assert (path.parents[path.parts[::-1].index("NAME")] if "NAME" in path.parts else path.parent).is_dir(), path
        assert path.exists() or "NAME" in str(path), path
    text = "".join(path.read_text("utf-8") for path in files if path.is_file())
    names = [word for word in QUOTED.findall(step) if re.fullmatch(r"\w+", word) and word not in ("case", "plan")]
    assert [name for name in names if text and not re.search(rf"\b{name}\b", text)] == []


def test_a_command_of_a_step_exists() -> None:
    commands = [word for step in STEPS for word in QUOTED.findall(step) if word.startswith(("mrc ", "python -m "))]
    assert len(commands) >= 3
    for command in commands:
        words = command.partition(" > ")[0].split()
        if words[0] == "mrc":
            assert CliRunner().invoke(app, [*words[1:], "--help"]).exit_code == 0, command
        else:
            assert importlib.util.find_spec(words[2]) is not None, command


def test_a_copied_workload_runs_once_it_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (ROOT / "openmrc" / "sim" / "workloads" / "incast.py").read_text("utf-8")
    (tmp_path / "rush.py").write_text(source.replace("Incast", "Rush").replace('tag="incast"', 'tag="rush"'))
    spec = importlib.util.spec_from_file_location("rush", tmp_path / "rush.py")
    assert spec is not None
    assert spec.loader is not None
    rush = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rush", rush)
    spec.loader.exec_module(rush)
    monkeypatch.setitem(families._FAMILIES, "rush", rush.plan)
    made = families.plan_of(WorkloadHosts(8), rush.Rush(size=1000, senders=3), seed=1)
    assert list(made.nodes().size) == [1000, 1000, 1000]


def test_the_schema_beside_the_scenarios_is_what_the_command_prints() -> None:
    said = CliRunner().invoke(app, ["sim", "schema"]).stdout
    assert said == (ROOT / "openmrc" / "sim" / "scenario" / "scenario.schema.json").read_text("utf-8")
