"""`mrc fabric cables`, `bom` and `cabled` as a person uses them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build, load
from openmrc.programs.main import app
from tests.fabric.lldp_dumps import as_sonic, exchange, heard, plugged

FABRICS = Path(__file__).parents[2] / "scenarios" / "fabrics"
LAB = str(FABRICS / "lab.yaml")
CABLES = 128  # 16 machines on 4 planes, 4 T0 with 4 uplinks on each


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["fabric", *map(str, words)])


def said(*words: object, code: int = 0) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_cables_are_printed_or_written(tmp_path: Path) -> None:
    printed = run("cables", LAB, "--names", "cumulus").stdout
    assert len(list(csv.DictReader(printed.splitlines()))) == CABLES
    summary = said("cables", LAB, "--names", "cumulus", "--out", tmp_path / "cables.csv")
    assert (tmp_path / "cables.csv").read_text() == printed
    assert (summary["cables"], sum(summary["by_length_m"].values()), summary["bytes"]) == (CABLES, CABLES, len(printed))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    result = run("cables", LAB, "--out", tmp_path / "no" / "cables.csv")
    assert isinstance(result.exception, ConfigError)
    assert "cannot be written: No such file or directory" in str(result.exception)


def test_the_bill_is_csv_or_objects(tmp_path: Path) -> None:
    rows = list(csv.DictReader(run("bom", LAB).stdout.splitlines()))
    assert {row["part"] for row in rows} == {"machine", "NIC", "switch", "transceiver", "cable"}
    items = said("bom", LAB, "--out", tmp_path / "bom.csv")["items"]
    assert [str(item["count"]) for item in items] == [row["count"] for row in rows]
    assert (tmp_path / "bom.csv").read_text() == run("bom", LAB).stdout


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    topology = build(load(LAB))
    folder = tmp_path / "dumps"
    folder.mkdir()
    for name, lines in heard(topology, plugged(topology)).items():
        (folder / f"{name}.json").write_text(as_sonic(lines))
    return folder


def test_right_cables_are_clean(dumps: Path) -> None:
    summary = said("cabled", LAB, "--lldp", dumps)
    assert (summary["clean"], summary["cables"], summary["right"], summary["findings"]) == (True, CABLES, CABLES, [])


def test_swapped_cables_end_with_1_and_say_what_to_do(dumps: Path) -> None:
    topology = build(load(LAB))
    cables, t0 = plugged(topology), topology.node_named("p1-t0-02")
    exchange(cables, (t0, 4), (t0, 6))
    for name, lines in heard(topology, cables).items():
        (dumps / f"{name}.json").write_text(as_sonic(lines))
    summary = said("cabled", LAB, "--lldp", dumps, code=1)
    assert (summary["swapped"], summary["right"]) == (1, CABLES - 2)
    assert summary["findings"][0]["remedy"].startswith("exchange the plugs at p1-t")


def test_dumps_that_are_none_are_refused(dumps: Path, tmp_path: Path) -> None:
    assert "contains no NODE.json" in str(run("cabled", LAB, "--lldp", tmp_path).exception)
    again = run("cabled", LAB, "--lldp", dumps, "--lldp", dumps / "p0-t0-00.json")
    assert "2 dumps of 'p0-t0-00'" in str(again.exception)


def test_exports_have_the_cages_of_the_plant(tmp_path: Path) -> None:
    file = tmp_path / "fabric.yaml"
    file.write_text(Path(LAB).read_text() + "plant: {cages: 64, lanes: 4, lane_gbps: 100}\n")
    ports = run("export", file, "--to", "cumulus", "--switch", "p0-t0-00").stdout
    assert "swp2s3" in ports
    assert "swp1s4" not in ports
    assert "swp1s7" in run("export", file, "--to", "cumulus", "--switch", "p0-t0-00", "--lanes", "8").stdout
