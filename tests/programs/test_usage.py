"""How commands fail: exit codes, JSON, and help as it was written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.programs.main import app
from openmrc.programs.perf.options import LONGEST_SECONDS, seconds
from tests.programs.in_process import run_here

WRONG = [
    ("demo", "--size", "abc"),
    ("demo", "--impair", "loss: much"),
    ("perf", "--cc", "bbr"),
    ("perf", "--mtu", "1000"),
    ("perf", "--format", "ipx"),
    ("perf", "--loopback", "host"),
    ("perf", "--timeout", "nan"),
    ("perf", "--planes", "99"),
    ("perf", "--nosuch"),
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
        "from openmrc.live.datapath import handles;"
        "from openmrc.live.datapath.rows import build_datapath;"
        "handles.store(handles._SAMPLE, build_datapath(handles._SAMPLE, 1, 1, 1, 1, 0, 0))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": "", "HOME": str(home)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run([sys.executable, "-c", code], cwd=work, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(work.iterdir()) == []
    assert any((home / ".cache" / "openmrc").iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("perf --loopback --lat -b", "--lat, -b: latency is of a round trip, which goes both ways; omit -b"),
        ("perf --loopback -t 8 -Q 9", "--cq-mod: 9 writes; --tx-depth leaves 8 outstanding"),
        ("perf --loopback -D 1 -n 5", "-n, -D, --run_infinitely: a run ends after a number of writes or of seconds"),
        ("collperf all_reduce --planes abc", "--planes: 'abc' is no address, no interface"),
        ("perf --planes fe80::1%nosuch0 --bind 127.0.0.1", "this machine has no interface 'nosuch0'"),
        ("view demo --apply", "--apply denies what is named faulty in a lab; give --lab NAME"),
        ("view demo --record nowhere/a.html", "--record: nowhere/a.html: there is no folder nowhere"),
        ("demo --out /dev/null", "--out: /dev/null is a file; expected a folder"),
        ("decode /dev/null --json", "/dev/null: truncated capture file (at byte 0)"),
    ],
)
def test_what_could_not_end_well_is_refused_before_it_begins(words: str, said: str) -> None:
    code, _, complaints = run_here(*words.split())
    assert code in (1, 2)
    assert said in complaints
    assert complaints.count("\n") == 1


def test_arguments_are_named_once_in_the_usage_line() -> None:
    for words, line in (("perf", "perf [OPTIONS] [HOST]"), ("fabric path", "{FABRIC} {SOURCE} {DESTINATION}")):
        assert line in CliRunner().invoke(app, [*words.split(), "--help"], env={"COLUMNS": "120"}).stdout


@pytest.mark.parametrize("words", ["fabric cables lab", "plan --gpus 1024", "plan --gpus 1024 --json", "doctor"])
def test_output_that_cannot_be_written_is_a_failure_in_one_line(words: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "openmrc.programs.main", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "mrc: results could not be written: No space left on device\n"
