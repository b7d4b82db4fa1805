"""The page of recipes: what it names exists, and seven recipes are followed to their end."""

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness import simulated_runs
from openmrc.core.calls import WORD
from openmrc.native import description
from openmrc.native.entries import ENTRIES, NativeEntry
from openmrc.operations.control.controller import ControllerEvent
from openmrc.programs import main
from openmrc.programs.main import app
from openmrc.programs.operations import map_watch
from openmrc.sim.loop import window
from openmrc.sim.network import egress
from openmrc.sim.network.network_tables import Network, Service
from openmrc.sim.transports.uet import transport as uet
from openmrc.sim.transports.uet.spraying import policies
from openmrc.sim.workloads.plan import WorkloadHosts
from openmrc.sim.workloads.shares import plan_of
from openmrc.sim.workloads.traffic import traffic
from openmrc.telemetry import exposition, metric_table
from openmrc.telemetry.metric_table import METRICS
from openmrc.units import NEVER
from tests.sim.small import leaf_spine
from tests.telemetry.snapshots_of_tests import endpoint

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "where.md").read_text("utf-8")
STEPS = [step for recipe in PAGE.split("## ")[1:] for step in re.split(r"^\d\. ", recipe, flags=re.MULTILINE)[1:]]
ANSWERS = re.findall(r"`(openmrc/[\w/.]+)`", PAGE.partition("## Which file answers")[2].partition("## A command")[0])
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


def test_every_question_is_answered_by_a_file_that_is_there() -> None:
    assert len(ANSWERS) > 10
    assert [path for path in ANSWERS if not (ROOT / path).is_file()] == []


def test_a_command_of_a_step_exists() -> None:
    commands = [word for step in STEPS for word in QUOTED.findall(step) if word.startswith(("mrc ", "python -m "))]
    assert len(commands) >= 3
    for command in commands:
        words = command.partition(" > ")[0].split()
        if words[0] == "mrc":
            assert CliRunner().invoke(app, [*words[1:], "--help"]).exit_code == 0, command
        else:
            assert importlib.util.find_spec(words[2]) is not None, command


def copied(path: Path, name: str, changes: dict[str, str], to: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that a file becomes when copied with some changes."""
    source = path.read_text("utf-8")
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    (to / f"{name}.py").write_text(source, "utf-8")
    spec = importlib.util.spec_from_file_location(name, to / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_a_copied_command_has_its_help_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "openmrc" / "programs" / "warm.py"
    hello = copied(
        path, "hello", {"def warm(": "def hello(", "    compile_all()\n": "    pass\n"}, tmp_path, monkeypatch
    )
    monkeypatch.setitem(sys.modules, "openmrc.programs.hello", hello)
    monkeypatch.setitem(main.COMMANDS["Try it"], "hello", main.Subcommand("hello:hello", "Say that it is there."))
    assert "hello" in CliRunner().invoke(app, ["--help"]).stdout
    assert json.loads(CliRunner().invoke(app, ["hello", "--json"]).stdout)["ok"]


def test_an_added_metric_is_in_the_text_and_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prometheus_client")
    mine = metric_table.Metric(name="mrc_port_mine", kind="gauge", about="Mine.", of=("port",))
    table = metric_table.MetricTable((*METRICS.port, mine), METRICS.endpoint, METRICS.queue_pair, METRICS.identity)
    for module in (metric_table, exposition):
        monkeypatch.setattr(module, "METRICS", table)
    assert b'mrc_port_mine{device="mrc_10.0.0.1"' in exposition.openmetrics([endpoint(2)])
    assert "| `mrc_port_mine` | gauge | Mine. |" in metric_table.as_markdown()


def test_an_event_of_any_kind_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    painted: Any = "painted"  # as a new kind would be
    event = ControllerEvent(at=2.0, what=painted, part="p0-t0-00", outcome="blue")
    map_watch.say(event, 1.0, False)
    assert capsys.readouterr().out.split() == ["1.000", "s", "painted", "p0-t0-00:", "blue"]


def test_an_added_entry_is_declared_for_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(at: int, question: int) -> int:
        return at + question

    monkeypatch.setitem(ENTRIES, "answer", NativeEntry(answer, (WORD, WORD)))
    (declared,) = [line for line in description.header("").splitlines() if "answer(" in line and "static" in line]
    assert "int64_t" in declared


def test_an_added_script_is_run(tmp_path: Path) -> None:
    script = tmp_path / "mine.mrc"
    script.write_text("test 1/1 wire-order must responder\n    Answered.\n> WRITE_ONLY psn=0 a=1\n< SACK cack_psn=0\n")
    done = CliRunner().invoke(app, ["conform", "--virtual", "--script", str(script)])
    assert done.exit_code == 0
    assert "1 pass" in done.stdout


def test_a_copied_workload_has_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "openmrc" / "sim" / "workloads" / "collectives" / "permutation.py"
    rush = copied(path, "rush", {"Permutation": "Rush", 'tag="permutation"': 'tag="rush"'}, tmp_path, monkeypatch)
    made = plan_of(WorkloadHosts(8), rush.Rush(size=1000), seed=1)
    assert list(made.nodes().size) == [1000] * 8


def test_a_copied_spraying_policy_chooses_entropies_once_it_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / "openmrc" / "sim" / "transports" / "uet" / "spraying" / "oblivious.py"
    changes = {"return next_in_round(state, nic, sender)": "return 2 * (next_in_round(state, nic, sender) // 2)"}
    even = copied(path, "even", changes, tmp_path, monkeypatch)
    every: Any = {**policies.POLICIES, "even": even.POLICY}
    monkeypatch.setattr(policies, "choose", policies.chooser(every))
    monkeypatch.setattr(policies, "learn", policies.learner(every))
    monkeypatch.setattr(uet, "POLICIES", every)
    for name in ("run_window", "level", "deliver_signals"):  # interpreted: compiled code has the policies of the tree
        monkeypatch.setattr(window, name, getattr(window, name).py_func)
    used = set[int]()
    monkeypatch.setattr(egress, "enqueue", noting_entropies(egress.enqueue, used))
    transport = uet.UetTransport(spraying="even", entropies=16)  # type: ignore[arg-type]
    results = simulated_runs.run(leaf_spine(hosts=4, down=2), traffic([0], [2], 100_000), transport)
    assert results.finished[0] < NEVER
    assert used == set(range(0, 16, 2))


def noting_entropies(enqueue: Callable[..., bool], into: set[int]) -> Callable[..., bool]:
    """Return `enqueue`, which notes the entropy of each data packet."""

    def noted(network: Network, shard: int, now: int, link: int, hop: int) -> bool:
        if network.hops[hop].service == Service.DATA:
            into.add(network.hops[hop].entropy)
        return enqueue(network, shard, now, link, hop)

    return noted


def test_the_schema_beside_the_scenarios_is_what_the_command_prints() -> None:
    said = CliRunner().invoke(app, ["sim", "schema"]).stdout
    assert said == (ROOT / "schema" / "scenario.schema.json").read_text("utf-8")
