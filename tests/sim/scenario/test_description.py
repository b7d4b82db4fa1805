"""Scenario files are typed; what is wrong is named with file, line and field."""

from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Fabric
from openmrc.sim.scenario.description import Matrix, load, schedule

FABRIC = "fabric: {name: x, hosts: {count: 16}, planes: [{host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}\n"
PERMUTATION = "workloads: [{kind: permutation, size: 2MB}]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


def test_a_scenario_needs_a_name_a_fabric_and_work(tmp_path: Path) -> None:
    scenario = load(written(tmp_path, "name: a\n" + FABRIC + PERMUTATION))
    assert (scenario.seed, scenario.transport.name) == (1, "mrc")
    assert isinstance(scenario.fabric, Fabric)


def test_files_are_looked_for_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(FABRIC.removeprefix("fabric: ").strip())
    (tmp_path / "m.cm").write_text("Nodes 16\nConnections 1\n0->1 start 0 size 9\n")
    scenario = load(written(tmp_path, "name: a\nfabric: f.yaml\nworkloads: [{kind: matrix, file: m.cm}]\n"))
    assert isinstance(scenario.fabric, Fabric)
    assert isinstance(scenario.workloads[0], Matrix)
    assert Path(scenario.workloads[0].file).is_absolute()


def test_on_is_a_word_in_faults(tmp_path: Path) -> None:
    text = "name: a\n" + FABRIC + PERMUTATION + "faults:\n  - {at: 2ms, for: 1ms, loss: 1%, on: h3>p0-t0-00}\n"
    assert [step.where for step in schedule(load(written(tmp_path, text))).steps] == ["h3>p0-t0-00"] * 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FABRIC + PERMUTATION, "missing required field `name`"),
        ("name: a\nname: b\n" + FABRIC + PERMUTATION, ":2: key 'name' is given twice"),
        ("name: a\nseeds: 3\n" + FABRIC + PERMUTATION, ":2: Object contains unknown field `seeds`"),
        ("name: a\nseed: -1\n" + FABRIC + PERMUTATION, ":2: Expected `int` >= 0"),
        ("name: a\n" + FABRIC + "workloads: []\n", ":3: Expected `array` of length >= 1"),
        ("name: a\n" + FABRIC + "workloads: [{kind: dance}]\n", ":3: Invalid value 'dance'"),
        ("name: a\n" + FABRIC + "workloads: [{kind: incast, size: 2MB, sender: 3}]\n", "unknown field `sender`"),
        ("name: a\n" + FABRIC + "workloads: [{kind: permutation, size: 2 parsecs}]\n", "a size such as 2MB"),
        ("name: a\n" + FABRIC + "workloads: [{kind: matrix, file: none.cm}]\n", "'none.cm' not found"),
        ("name: a\nfabric: none.yaml\n" + PERMUTATION, "none.yaml: file not found"),
        ("name: a\ntransport: {name: tcp}\n" + FABRIC + PERMUTATION, ":2: Invalid enum value 'tcp'"),
        ("name: a\ntransport: {qps: 17}\n" + FABRIC + PERMUTATION, ":2: Expected `int` <= 16"),
        ("name: a\nuntil: soon\n" + FABRIC + PERMUTATION, ":2: Expected `str` that is a time such as 50us"),
        ("name: a\n" + FABRIC + PERMUTATION + "faults: [{at: 1s, melt: plane 1}]\n", "unknown word 'melt'"),
        ("name: [a\n", "not YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load(path)
    assert says in str(raised.value)
    assert str(tmp_path) in str(raised.value)
