"""What `mrc sim` refuses: one line that names file, line and value, soon, and never a traceback."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import MrcError
from openmrc.programs import main as command
from openmrc.programs.simulation.sim import PointsDone
from openmrc.sim import sweep_runs
from openmrc.sim.sweep import Point, read

FABRIC = (
    "fabric: {name: f, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}\n"
)
BASE = "name: x\n" + FABRIC + "transport: {name: datagrams}\nuntil: 1ms\n"
WORK = "workloads: [{kind: permutation, size: 64KiB}]\n"


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> tuple[Any, str]:
    """Run `mrc sim`, and return its exit code and what stderr says."""
    monkeypatch.setattr(sys, "argv", ["mrc", "sim", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        command.main()
    return ended.value.code, capsys.readouterr().err


def assert_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path, line: int, why: str
) -> None:
    """Check that `mrc sim run` refuses a scenario in one line that names the line of the file and says why."""
    code, text = said(capsys, monkeypatch, "run", file, "--out", file.parent / "out")
    assert (code, text.count("\n")) == (1, 1), text
    assert text.startswith(f"mrc: {file}:{line}: ")
    assert why in text


@pytest.mark.parametrize(
    ("work", "why"),
    [
        ("permutation, size: 99999999999999999999GB", "'99999999999999999999GB': expected at most 1,048,576GiB"),
        ("permutation, size: 64KiB, start: 99999999999999s", "start: '99999999999999s': expected at most 1,000,000s"),
        ("permutation, size: 64KiB, stride: 99999999999999999999", "Expected `int` <= 1099511627775, got 9999999"),
        ("permutation, size: 64KiB, messages: 1000000000", "messages: 16,000,000,000 messages and computations, at "),
        ("permutation, size: 0", "Expected `int` >= 1, got 0 - at `$.workloads[0].size`"),
        ("permutation, size: 64kib", "a size such as 2MB, 64KiB or 4096 (bytes), got '64kib'"),
        ("tree_all_reduce, size: 64KiB, chunks: 100000000", "chunks: 3,000,000,000 messages and computations"),
        ("mixture_of_experts, size: 64KiB, layers: 1000000000", "layers: 512,000,000,000 messages"),
        ("pipeline, size: 64KiB, stages: 4, microbatches: 1000000000", "microbatches: 64,000,000,000 messages"),
        ("background, size: 1, load: 1.0, duration: 1s", "duration: 400,000,000,000 messages"),
        ("training_step, steps: 1000000000, compute: 1us, collectives: [{kind: permutation, size: 1}]",
         "steps: 32,000,000,000 messages"),
        ("incast, size: 64KiB, senders: 3, receiver: 16", "incast: receiver: 16 is not a host; hosts are 0..15"),
        ("incast, size: 64KiB, senders: 3, first_sender: 99", "incast: first_sender: 99 is not a host"),
        ("outcast, size: 64KiB, receivers: 3, sender: 99", "outcast: sender: 99 is not a host; hosts are 0..15"),
        ("all_to_all, size: 64KiB, group: 5", "group: 5 must be at least 2 and divide 16, the number of hosts"),
        ("hierarchical_all_reduce, size: 64KiB, domain: 4, domain_gbps: 1, domain_latency_ns: 1000000000000000",
         "Expected `int` <= 1099511627775"),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, work: str, why: str
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(BASE + "workloads:\n  - {kind: permutation, size: 1KB}\n  - {kind: " + work + "}\n")
    why = why.replace("workloads[0]", "workloads[1]")
    began = time.monotonic()
    assert_refused(capsys, monkeypatch, file, 7, why)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            "faults: [{at: 99999999999999999s, loss: 1%}]",
            ":6: faults, step 1, at: '99999999999999999s' is more than 1,0",
        ),
        ("faults: [{delay: 99999999999999999s}]", "delay: '99999999999999999s' is more than 1,000,000s"),
        ("faults: [{at: 1us, for: 0us, down: h0}]", "for: '0us': expected a time above 0"),
        ("faults: [{rate: 0Gbps}]", "rate: '0Gbps' would be no limit; write `down` for a dead link"),
        ("faults: [{down: 3 random core links of all}]", "all has no core links"),
        ("until: 5", ":6: key 'until' is given twice"),
        ("sampling: {every: 7}", "got `int` 7 - at `$.sampling.every`; expected a time such as 50us, 1.5ms or 2s"),
        ("seed: 2020-99-99", ":6: Expected `int`, got `str` '2020-99-99'"),
        ("capture: {hosts: [nosuch]}", ":6: capture: transport datagrams has no MRC packets"),
    ],
)
def test_other_fields_are_refused_with_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: str, why: str
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(BASE + WORK + more + "\n")
    assert_refused(capsys, monkeypatch, file, 6, why)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            "max_cwnd: 99999999999999999999",
            "settings: max_cwnd: 99999999999999999999: expected at most 281474976710656",
        ),
        ("evs: 0", "transport: settings: evs: 0 is not in 1..1024"),
        ("evz: 8", "transport: settings: 'evz' is unknown; did you mean 'evs'?"),
    ],
)
def test_a_setting_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, settings: str, why: str
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "name: x\n" + FABRIC + WORK + "transport:\n  settings:\n    loss_threshold: 3\n    " + settings + "\n"
    )
    assert_refused(capsys, monkeypatch, file, 7, why)


def test_an_empty_file_is_told_what_belongs_into_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("# nothing\n")
    code, text = said(capsys, monkeypatch, "run", file)
    assert (code, text) == (1, f"mrc: {file}: nothing in it; expected a mapping with name, fabric, workloads\n")


@pytest.mark.parametrize("name", ["''", "..", "a/b", "../../evil", '"a\\0b"', "x" * 300])
def test_a_name_that_is_no_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(BASE.replace("name: x", f"name: {name}") + WORK)
    code, text = said(capsys, monkeypatch, "run", "s.yaml")
    assert code == 1
    assert "cannot be the name of the folder for the results; give --out FOLDER" in text
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--perfetto", "nosuch/timeline.json"), "--perfetto: folder nosuch does not exist"),
        (("--perfetto", "."), "--perfetto: . is a folder; expected a file"),
        (("--out", "s.yaml"), "--out: s.yaml is a file; expected a folder"),
        (("--capture", ","), "--capture: ',' names no NIC"),
    ],
)
def test_results_that_cannot_be_written_are_refused_before_the_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(BASE + WORK)
    code, text = said(capsys, monkeypatch, "run", "s.yaml", *options)
    assert (code, text.count("\n")) == (2, 1), text
    assert why in text
    assert not (tmp_path / "runs").exists()


def test_a_wrong_option_is_not_blamed_on_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.yaml").write_text(BASE + WORK + "capture: {hosts: [0]}\n")
    code, text = said(capsys, monkeypatch, "run", tmp_path / "s.yaml", "--capture", "h99", "--out", tmp_path / "out")
    assert (code, text.count("\n")) == (2, 1)
    assert text.startswith("mrc: --capture: transport datagrams has no MRC packets")


def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.yaml").write_text(BASE + WORK)
    code, text = said(capsys, monkeypatch, "run", tmp_path / "s.yaml", "--out", "/proc/nosuch")
    assert (code, text) == (1, "mrc: /proc/nosuch: No such file or directory\n")


@pytest.mark.parametrize("text", ["\n", "Nodes 4\n"])
def test_a_matrix_without_connections_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "m.cm").write_text(text)
    (tmp_path / "f.yaml").write_text("name: f\nhosts: {count: 4}\nplanes: [{host_gbps: 100, t0: {down: 4}}]\n")
    code, said_ = said(capsys, monkeypatch, "run", "--tm", tmp_path / "m.cm", "--topo", tmp_path / "f.yaml")
    assert (code, said_.count("\n")) == (1, 1)
    assert "m.cm:1: " in said_


@pytest.mark.parametrize("gpus", ["17", "4194304000"])
def test_a_number_of_gpus_that_no_fabric_has_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, gpus: str
) -> None:
    code, text = said(capsys, monkeypatch, "ask", "roce", "--gpus", gpus)
    assert code == 2
    assert "--gpus" in text


def sweep(folder: Path) -> list[Point]:
    (folder / "s.yaml").write_text(BASE + WORK)
    (folder / "sweep.yaml").write_text("scenario: s.yaml\nvary: {seed: [1, 2]}\n")
    return read(folder / "sweep.yaml")[1]


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_ends_a_sweep_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = sweep(tmp_path)
    monkeypatch.setattr(sweep_runs, "_run_point", _die)
    with pytest.raises(MrcError, match="a worker process was killed, probably for lack of memory") as caught:
        sweep_runs.run(points, tmp_path / "out", "processes", 1, lambda *_: None)
    assert not isinstance(caught.value, BrokenProcessPool)


def test_the_time_left_of_a_sweep_is_estimated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    said_ = PointsDone()
    said_(1, 4, [])  # kept from an earlier call
    now[0] = 30.0
    said_(1, 4, [0.5, 0.25])
    now[0] = 60.0
    said_(3, 4, [])
    said_(4, 4, [])
    assert capsys.readouterr().err.splitlines() == [
        "1 of 4 points done",
        "1 of 4 points done; 50%, 25% of the 2 points that run; about 90 s left for all",
        "3 of 4 points done; about 30 s left for all",
        "4 of 4 points done",
    ]
