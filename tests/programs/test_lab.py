"""`mrc lab` as a person uses it: up, exec, fault, status, down, each with --json."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import labs
from openmrc.lab import namespaces
from tests.lab.conftest import fabric_file, remove
from tests.programs.processes import mrc, run

pytestmark = pytest.mark.needs("lab")

NAME = f"c{os.getpid()}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A lab that `mrc lab up` has made."""
    try:
        summary = said("lab", "up", fabric_file(tmp_path_factory.mktemp("lab"), NAME), "--json")
        assert (summary["name"], summary["ports"], summary["trimming"]) == (NAME, 2 * (2 * 4 + 2 * 4), True)
        yield NAME
    finally:
        remove(NAME)


def said(*arguments: object) -> dict[str, Any]:
    """Run a command with --json and return its object."""
    code, out, err = run(*arguments)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_it_is_listed_and_a_second_one_of_the_name_is_refused(lab: str, tmp_path: Path) -> None:
    assert {"name": lab, "state": "up"}.items() <= next(
        each for each in said("lab", "list", "--json")["labs"] if each["name"] == lab
    ).items()
    code, _, err = run("lab", "up", fabric_file(tmp_path, lab))
    assert (code, err.count("\n")) == (1, 1)
    assert f"mrc lab down {lab}" in err


def test_a_lab_that_is_not_named_is_the_only_one_and_said_or_refused_with_all_names(lab: str, tmp_path: Path) -> None:
    others = [each["name"] for each in said("lab", "list", "--json")["labs"] if each["name"] != lab]
    if not others:  # other tests may have labs on this machine
        code, out, err = run("lab", "exec", "h1", "--", "sh", "-c", "echo $MRC_NIC")
        assert (code, Path(out.strip()).name, err) == (0, "h1.json", f"mrc: lab {lab}\n")
    second = f"{NAME}b"
    try:
        said("lab", "up", fabric_file(tmp_path, second), "--json")
        for words in (["status"], ["down"]):
            code, out, err = run("lab", *words)
            assert (code, out) == (1, "")
            assert lab in err
            assert second in err
    finally:
        remove(second)


def test_exec_runs_as_the_host_and_hands_its_exit_code_on(lab: str) -> None:
    code, out, _ = run("lab", "exec", "--lab", lab, "h1", "--", "sh", "-c", "echo $MRC_NIC; exit 7")
    assert (code, Path(out.strip()).name) == (7, "h1.json")
    code, _, err = run("lab", "exec", "--lab", lab, "h99", "--", "true")
    assert code == 1
    assert "no node 'h99'" in err


def test_faults_show_in_the_status_until_they_are_cleared(lab: str) -> None:
    summary = said("lab", "fault", "--lab", lab, "down: h0 port 1; at: 50ms, loss: 1%, on: plane 0", "--json")
    assert [step["where"] for step in summary["steps"]] == ["h0 port 1", "plane 0"]
    links = said("lab", "status", lab, "--json")["links"]
    assert said("lab", "status", "-l", lab, "--json")["name"] == lab
    assert sorted(link["name"] for link in links if not link["up"]) == ["h0>p1-t0-00", "p1-t0-00>h0"]
    assert said("lab", "fault", "--lab", lab, "--clear", "--json")["down"] == []
    assert all(link["up"] for link in said("lab", "status", lab, "--json")["links"])
    code, out, _ = run("lab", "status", lab, "--all")
    assert code == 0
    assert "h0>p0-t0-00" in out
    assert "fcbb:bb00:1000::/48" in out


def test_schedules_come_from_files_and_wrong_words_are_refused_by_name(lab: str, tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("- {for: 50ms, down: p0-t1-01}\n")
    assert len(said("lab", "fault", "--lab", lab, "--schedule", path, "--json")["steps"]) == 2
    code, _, err = run("lab", "fault", "--lab", lab, "delay: 1ms")
    assert code == 1
    assert "does not support 'delay'" in err


def test_down_removes_it_and_what_runs_in_it(lab: str) -> None:
    sleeper = mrc("lab", "exec", "--lab", lab, "h2", "--", "sleep", "600")
    deadline = time.monotonic() + 60
    while not labs.processes_in(lab) and time.monotonic() < deadline:
        time.sleep(0.05)
    (removed,) = said("lab", "down", lab, "--json")["removed"]
    assert removed == {"name": lab, "namespaces": 13, "processes_ended": 1}
    sleeper.communicate(timeout=60)
    assert namespaces.of_lab(lab) == []
    code, _, err = run("lab", "down", lab)
    assert code == 1
    assert f"no lab called '{lab}'" in err


def test_failures_are_objects_where_json_was_asked_for() -> None:
    nobody = ["fault", "down: plane 0", "--lab", "nobody"]
    for words in (["up", "nowhere.yaml"], ["down", "nobody"], ["status", "nobody"], nobody):
        code, out, err = run("lab", *words, "--json")
        assert code == 1
        assert err == f"mrc: {json.loads(out)['error']}\n"
