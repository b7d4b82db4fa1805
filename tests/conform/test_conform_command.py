"""`mrc conform`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from openmrc.cli.main import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["conform", *map(str, arguments)])


def test_the_list_names_every_test_with_its_clause() -> None:
    lines = run("--list").stdout.splitlines()
    assert any(line.split()[:4] == ["6.3.1/1", "must", "responder", "psn-new"] for line in lines)
    listed = json.loads(run("--list", "--json", "6.3.1/1").stdout)["tests"]
    assert listed[0]["section"] == "§6.3.1"
    assert "> WRITE_FIRST" in listed[0]["script"]


def test_chosen_tests_run_and_say_what_they_came_to() -> None:
    result = run("--virtual", "6.3.1/1", "--only", "6.3.1/9")
    assert result.exit_code == 0
    assert "1 pass, 1 info" in result.stdout
    record = json.loads(run("--virtual", "--json", "6.3.1/1").stdout)
    assert record["counts"]["pass"] == 1
    assert record["tests"][0]["verdict"] == "pass"


def test_a_failure_is_explained_and_the_exit_code_is_1(tmp_path: Path) -> None:
    script = tmp_path / "mine.mrc"
    script.write_text("test 1/1 wire-order must responder\n    Not so.\n> WRITE_ONLY psn=0 a=1\n< SACK cack_psn=7\n")
    result = run("--virtual", "--script", script)
    assert result.exit_code == 1
    assert "came      cack_psn is 0, expected 7 (packet 2)" in result.stdout
    (test,) = json.loads(run("--virtual", "--json", "--script", script).stdout)["tests"]
    assert (test["verdict"], test["expected"]) == ("fail", "< SACK cack_psn=7")


def test_a_test_that_does_not_exist_is_refused() -> None:
    result = run("--virtual", "99.9")
    assert "names no test" in str(result.exception)


def test_a_device_that_is_no_program_is_refused_and_one_that_ends_at_once_fails() -> None:
    for option in ("--device", "--peer"):
        refused = run(option, "no-such-adapter --fast", "7.5.6/1")
        assert "'no-such-adapter' is no program, nor one of the adapters endpoint, libmrc" in str(refused.exception)
    for test in ("7.5.6/1", "7.5.6/3"):  # one that must pass, and one for information only
        result = run("--device", "false", test)
        assert result.exit_code == 1
        assert "came      the device is gone: the adapter ended with exit code 1" in result.stdout
        assert "1 fail" in result.stdout
