"""`mrc conform`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from openmrc.conform import suite
from openmrc.conform.language import ScriptTest
from openmrc.conform.results import TestResult
from openmrc.errors import ConfigError
from openmrc.programs.main import app
from openmrc.programs.outcome import Terminated
from openmrc.programs.packets import conform


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["conform", *map(str, arguments)])


def test_the_list_names_every_test_with_its_clause() -> None:
    lines = run("--list").stdout.splitlines()
    assert any(line.split()[:4] == ["6.3.1/1", "must", "responder", "psn-new"] for line in lines)
    listed = json.loads(run("--list", "--json", "6.3.1/1").stdout)["tests"]
    assert listed[0]["section"] == "§6.3.1"
    assert "> WRITE_FIRST" in listed[0]["script"]


def test_chosen_tests_run_and_say_what_they_came_to() -> None:
    result = run("--virtual", "6.3.1/1", "6.3.1/9")
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


def write_adapter(path: Path, code: str) -> str:
    """Return the command of an adapter in Python."""
    path.write_text(f"import json, sys\n{code}\n")
    return f"{sys.executable} {path}"


def test_numbers_out_of_range_fail_the_test_and_the_run_goes_on(tmp_path: Path) -> None:
    answer = {"planes": ["127.0.0.9"] * 2, "qpn": -1, "psn": 0, "addr": 0, "r_key": 1, "length": 64, "mtu": 256}
    code = f"for line in sys.stdin: print(json.dumps({answer | {'mpr': 8, 'max_wimm': 1}}), flush=True)"
    result = run("--device", write_adapter(tmp_path / "negative.py", code), "7.5.6/1", "7.5.6/3")
    assert result.exit_code == 1
    assert result.stdout.count("qpn is -1, not in 0..16777215") == 2
    assert "2 fail" in result.stdout


def test_a_run_in_which_nothing_was_judged_is_no_success(tmp_path: Path) -> None:
    code = """for line in sys.stdin: print('{"unsupported": "nothing yet"}', flush=True)"""
    command = write_adapter(tmp_path / "nothing.py", code)
    result = run("--device", command, "7.5.6/1", "7.5.6/3")
    assert (result.exit_code, "2 unsupported" in result.stdout) == (2, True)
    assert "nothing was judged" in result.stderr
    assert json.loads(run("--device", command, "7.5.6/1", "--json").stdout)["ok"] is False


def test_an_adapter_that_is_not_found_is_a_fault_of_the_set_up() -> None:
    result = run("--device", "sh -c no-such-adapter", "7.5.6/1")
    assert result.exit_code == 1
    assert 'exit code 127 before it answered `open`; was "sh -c no-such-adapter" found?' in str(
        result.exception
    ).replace("'", '"')


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Terminated(), ConfigError("no such address")], ids=repr)
def test_a_run_that_is_stopped_writes_what_ran(stop: BaseException, tmp_path: Path, monkeypatch: Any) -> None:
    real = suite.run_virtually
    ran: list[ScriptTest] = []

    def stopped(test: ScriptTest) -> TestResult:
        if ran:
            raise stop
        ran.append(test)
        return real(test)

    monkeypatch.setattr(conform, "run_virtually", stopped)
    report = tmp_path / "results.xml"
    result = run("--virtual", "6.3.1/1", "6.3.1/2", "--json", "--junit", report, "--html", tmp_path / "page.html")
    assert result.exit_code == {KeyboardInterrupt: 130, Terminated: 143, ConfigError: 1}[type(stop)]
    record = json.loads(result.stdout)
    assert (record["ok"], [test["id"] for test in record["tests"]]) == (False, ["6.3.1/1"])
    assert record["error"] in ("interrupted", "terminated", "no such address")
    written = ElementTree.parse(report).getroot()
    assert [written.get(name) for name in ("tests", "failures", "errors")] == ["2", "0", "1"]
    assert "6.3.1/1; pass" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("option", ["--junit", "--html", "--captures"])
def test_results_that_could_not_be_written_are_refused_before_the_run(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("--virtual", "6.3.1/1", option, tmp_path / "file" if option == "--captures" else tmp_path / "no" / "f")
    assert option in str(result.exception)
    assert result.stdout == ""
