"""How commands fail: exit codes, JSON, and help as it was written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.cli.data.transfer_options import LONGEST_SECONDS, seconds
from openmrc.cli.main import app

from .in_process import run_here

WRONG = [
    ("demo", "--size", "abc"),
    ("demo", "--impair", "loss: much"),
    ("perf", "--cc", "bbr"),
    ("perf", "--mtu", "1000"),
    ("perf", "--format", "ipx"),
    ("perf", "--loopback", "host"),
    ("perf", "--tos", "4"),
    ("perf", "--timeout", "nan"),
    ("perf", "--planes", "99"),
    ("perf", "--nosuch"),
    ("send", "a.bin"),
    ("recv", "--out", "/dev/null"),
    ("recv", "--max-size", "much"),
    ("decode",),
    ("decode", "--hex", "xyz"),
    ("decode", "--ev-format", "ipx", "--hex", "00"),
    ("sim", "run"),
    ("nosuch",),
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_is_exit_code_2_and_one_line(arguments: tuple[str, ...]) -> None:
    code, said, complaints = run_here(*arguments)
    assert code == 2, complaints
    assert said == ""
    assert "Traceback" not in complaints
    assert complaints


@pytest.mark.parametrize("arguments", [each for each in WRONG if each != ("nosuch",)], ids=" ".join)
def test_with_json_wrong_usage_is_an_object_with_an_error(arguments: tuple[str, ...]) -> None:
    code, said, _ = run_here(*arguments, "--json")
    assert code == 2
    (line,) = said.splitlines()
    assert json.loads(line)["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("sim", "run", "no-such-file.yaml"),
        ("send", "no-such-file", "127.0.0.1"),
        ("decode", "no-such-file"),
        ("perf", "--planes", "192.0.2.1"),
        ("fabric", "show", "no-such-file.yaml"),
    ],
    ids=" ".join,
)
def test_with_json_a_failure_is_one_object_with_an_error(arguments: tuple[str, ...]) -> None:
    code, said, complaints = run_here(*arguments, "--json")
    assert code == 1, complaints
    (line,) = said.splitlines()
    assert json.loads(line)["error"]
    assert "Traceback" not in complaints


def test_square_brackets_of_help_texts_are_shown() -> None:
    said = CliRunner().invoke(app, ["sim", "run", "--help"], env={"COLUMNS": "200"}).stdout
    assert "[runs/NAME; none with --topo]" in said


def test_options_of_perf_are_in_panels() -> None:
    said = CliRunner().invoke(app, ["perf", "--help"], env={"COLUMNS": "120"}).stdout
    for title in ("Measurement", "Amount", "Endpoint", "Impairments and capture", "Output"):
        assert title in said
    assert "--tx-depth" in said


def test_infinite_time_outs_are_long_ones() -> None:
    assert seconds(float("inf")) == LONGEST_SECONDS
    assert seconds(3.0) == 3.0
    assert seconds(None) is None


def test_with_an_empty_cache_variable_compiled_code_goes_home_not_to_the_working_directory(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    code = (
        "from openmrc.live.datapath import table_handles as handles;"
        "from openmrc.live.datapath.datapath_tables import build_datapath;"
        "handles.store(handles._SAMPLE, build_datapath(handles._SAMPLE, 1, 1, 1, 1, 0, 0))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": "", "HOME": str(home)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run([sys.executable, "-c", code], cwd=work, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(work.iterdir()) == []
    assert any((home / ".cache" / "openmrc").iterdir())
