import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.errors import ConfigError
from openmrc.programs.main import app

run = CliRunner().invoke


def test_json_has_the_published_design_and_its_rivals() -> None:
    result = run(app, ["plan", "--gpus", "131072", "--nic", "800G", "--planes", "8", "--switch", "51.2T", "--json"])
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    first = said["designs"][0]
    assert {"tiers", "max_hops", "switches", "links", "optics", "watts", "cost", "loss_percent"} <= set(first)
    assert {"t0", "t1", "t2", "total"} <= set(first["switches"])
    assert {"nic_link", "t0_t1_link", "t0", "t1", "plane"} <= set(first["loss_percent"])
    saved = said["ratios"]["single-plane-3-tier"]
    assert (saved["optics"], saved["switches"]) == pytest.approx((2 / 3, 3 / 5))


def test_the_table_names_the_designs() -> None:
    result = run(app, ["plan", "--gpus", "1024", "--planes", "4"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "4-plane" in result.stdout
    assert "single-plane-3-tier" in result.stdout


def test_the_search_names_its_find() -> None:
    result = run(app, ["plan", "--cheapest", "--max-hops", "3", "--json"])
    said = json.loads(result.stdout)
    assert said["cheapest"] == said["designs"][0]["name"]


def test_a_bad_plan_is_refused_with_what_works() -> None:
    result = run(app, ["plan", "--planes", "7"])
    assert isinstance(result.exception, ConfigError)
    assert "planes that work: 1, 2, 4, 8, 16" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (["--rails", "7"], "131072 NICs do not divide into 7 rails; use 8"),
        (["--switch", "50T"], "only 25.6T, 51.2T, 102.4T"),
        (["--nic", "0G"], "not a rate"),
        (["--cheapest", "--max-hops", "1"], r"nearest is 8-plane-2-tier-51.2T, which exceeds max-hops 1 \(it has 3\)"),
        (["--cheapest", "--max-cost", "1"], "nearest is .* exceeds max-cost 1"),
    ],
)
def test_every_wish_that_cannot_be_is_answered_with_the_nearest_that_can(text: list[str], said: str) -> None:
    result = run(app, ["plan", *text])
    assert isinstance(result.exception, ConfigError)
    assert re.search(said, str(result.exception))


def test_the_table_has_the_blast_radius_of_every_part() -> None:
    said = run(app, ["plan", "--gpus", "1000", "--planes", "4"], env={"COLUMNS": "250"}).stdout
    parts = ("a NIC-T0 link", "a NIC's port", "a NIC's optic", "a T0-T1 link", "a T0", "a T1", "a plane")
    for loser in ("NIC", "fabric"):
        assert all(f"{loser} loss by {part} " in said for part in parts)
    assert "fabric loss by a T0's optic" in said


def test_the_file_that_is_written_builds_what_was_planned(tmp_path: Path) -> None:
    out = tmp_path / "fabric.yaml"
    result = run(app, ["plan", "--gpus", "1024", "--planes", "4", "--nics-per-host", "8", "--out", str(out), "--json"])
    planned = json.loads(result.stdout)["designs"][0]
    shown = json.loads(run(app, ["fabric", "show", str(out), "--json"]).stdout)
    assert (shown["switches"], shown["links"]) == (planned["switches"]["total"], planned["links"])
    assert (shown["nics"], shown["nics_per_host"]) == (1024, 8)
    assert json.loads(run(app, ["fabric", "verify", str(out), "--json"]).stdout)["proven"]


def test_any_design_can_be_written(tmp_path: Path) -> None:
    out = tmp_path / "fabric.yaml"
    words = ["plan", "--gpus", "4096", "--out", str(out), "--design", "single-plane-3-tier", "--json"]
    planned = {each["name"]: each for each in json.loads(run(app, words).stdout)["designs"]}["single-plane-3-tier"]
    shown = json.loads(run(app, ["fabric", "show", str(out), "--json"]).stdout)
    assert [shown["planes"][0][tier] for tier in ("t0", "t1", "t2")] == [
        planned["switches"][tier] for tier in ("t0", "t1", "t2")
    ]
    result = run(app, ["plan", "--out", str(out), "--design", "ring"])
    assert "'ring' is not among 8-plane, single-plane-3-tier" in str(result.exception)


def test_oversubscription_holds_for_every_design_and_is_printed() -> None:
    said = json.loads(run(app, ["plan", "--gpus", "16384", "--oversubscription", "2", "--json"]).stdout)
    ratios = {each["name"]: each["oversubscription"] for each in said["designs"]}
    assert len(ratios) > 2
    assert all(1.85 < ratio <= 2 for ratio in ratios.values()), ratios
    table = run(app, ["plan", "--gpus", "16384", "--oversubscription", "2"], env={"COLUMNS": "200"}).stdout
    assert "down : up at T0" in table
    assert "42:22 = 1.91" in table


@pytest.mark.parametrize("words", [["--planes", "7"], ["job", "--days", "0"], ["--cheapest", "--max-cost", "1"]])
def test_failures_are_objects_where_json_was_asked_for(words: list[str]) -> None:
    result = run(app, ["plan", *words, "--json"])
    assert isinstance(result.exception, ConfigError)
    assert json.loads(result.stdout) == {"ok": False, "error": str(result.exception)}
