"""What the doctor says of machines that have everything, lack something, or do not let it try."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.lab import doctor
from openmrc.lab.doctor import Need


def test_with_root_everything_is_tried_and_nothing_is_left(lab_rights: None) -> None:
    report = doctor.examine()
    assert report.ready is True
    tried = {each.name: each.how for each in report.findings if each.name in {need.name for need in doctor.NEEDS}}
    assert tried["uSID (NEXT-C-SID)"] == "tried in a temporary namespace"
    assert not list(Path("/run/netns").glob(f"{doctor._BOX}-*"))


def test_a_missing_ability_names_what_was_tried_and_what_brings_it(
    lab_rights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    netem = Need("netem", "delays", "CONFIG_NET_SCH_NETEM", ("ip link add z type unheard_of",))
    monkeypatch.setattr(doctor, "NEEDS", (*doctor.NEEDS, netem))
    report = doctor.examine()
    assert report.ready is False
    assert report.findings[-1].met is False
    assert "`ip link add z type unheard_of`" in report.findings[-1].how
    assert "CONFIG_NET_SCH_NETEM" in report.findings[-1].remedy


def test_without_root_it_reads_the_kernels_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(doctor, "kernel_config", lambda: ("/boot/config", {"CONFIG_VETH": "y", "CONFIG_BRIDGE": "m"}))
    report = doctor.examine()
    met = {each.name: each.met for each in report.findings}
    assert (met["veth"], met["bridge"], met["HTB"]) == (True, True, False)
    assert report.ready is False


def test_without_root_and_configuration_it_says_that_it_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(doctor, "kernel_config", lambda: None)
    report = doctor.examine()
    assert {each.met for each in report.findings if each.name == "veth"} == {None}
    assert report.ready in (None, False)


def test_the_command_prints_one_object() -> None:
    done = subprocess.run([sys.executable, "-m", "openmrc.programs.main", "doctor", "--json"], capture_output=True)
    summary = json.loads(done.stdout)
    assert {"kernel", "root", "ready", "findings"} <= set(summary)
    assert done.returncode == (1 if summary["ready"] is False else 0)
