import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.errors import ConfigError
from openmrc.fabric.model.build import load
from openmrc.programs.main import app
from tests.fabric.split_sonic import write_fabric

run = CliRunner().invoke


def learned(tmp_path: Path) -> tuple[str, str]:
    write_fabric(tmp_path / "site", decapsulating=True)
    file = tmp_path / "site.yaml"
    result = run(app, ["fabric", "learn", str(tmp_path / "site"), "--out", str(file)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{file}: 10 switches, 3 NICs, 2 planes, 18 cables\n"
    return str(file), result.stderr


def test_a_learned_fabric_is_verified_and_followed_in_its_own_names(tmp_path: Path) -> None:
    file, _ = learned(tmp_path)
    result = run(app, ["fabric", "verify", file, "--from", str(tmp_path / "site"), "--without", "p0-spine01"])
    assert result.stdout.startswith("tables PROVEN")
    assert "PROVEN without p0-spine01" in result.stdout
    path = json.loads(run(app, ["fabric", "path", file, "h0", "h2", "--ev", "1", "--json"]).stdout)
    assert path["nodes"] == ["h0", "p1-leaf00", "p1-spine00", "p1-leaf02", "h2"]
    assert path["address"].startswith("fc00:1:20:10:22:e009:")


def test_lines_that_are_alike_are_told_once_with_their_number(tmp_path: Path) -> None:
    _, told = learned(tmp_path)
    lines = [line for line in told.splitlines() if "not used" in line]
    assert [line.partition("not used: ")[2].split(" ")[0] for line in lines] == ["ipv6", "sid", "sid"]
    assert lines[0].endswith("2001:db8:fab:0000::0 (and 29 lines like it)")


def test_a_printed_fabric_is_the_file_and_json_has_every_line(tmp_path: Path) -> None:
    write_fabric(tmp_path / "site")
    text = run(app, ["fabric", "learn", str(tmp_path / "site")]).stdout
    (tmp_path / "again.yaml").write_text(text)
    assert run(app, ["fabric", "show", str(tmp_path / "again.yaml"), "p1-spine01"]).exit_code == 0
    answer = json.loads(run(app, ["fabric", "learn", str(tmp_path / "site"), "--json"]).stdout)
    assert (answer["nics"], answer["irregular"], answer["fabric"]["name"]) == (3, "", "site")
    assert {"file", "line", "what"} == set(answer["not_used"][0])


def test_a_fabric_in_json_is_the_one_in_yaml(tmp_path: Path) -> None:
    write_fabric(tmp_path / "site")
    for name in ("a.yaml", "a.json"):
        assert run(app, ["fabric", "learn", str(tmp_path / "site"), "--out", str(tmp_path / name)]).exit_code == 0
    assert load(tmp_path / "a.json") == load(tmp_path / "a.yaml")
    (tmp_path / "a.json").write_text('{"name": "x", "hosts": {"count": "many"}}')
    with pytest.raises(ConfigError, match=r"a\.json: not a fabric: Expected `int`, got `str` - at `\$\.hosts\.count`"):
        load(tmp_path / "a.json")


def test_an_irregular_fabric_is_told_by_the_exit_code(tmp_path: Path) -> None:
    write_fabric(tmp_path / "site")
    for file in (tmp_path / "site" / "p0-spine01").iterdir():
        file.unlink()  # so there seems to be a machine behind the leaves' ports to it
    result = run(app, ["fabric", "learn", str(tmp_path / "site"), "--out", str(tmp_path / "site.yaml")])
    assert result.exit_code == 1
    assert "mrc: irregular, kept as a list of nodes and links: NIC " in result.stderr
    assert run(app, ["fabric", "show", str(tmp_path / "site.yaml")]).exit_code == 0
