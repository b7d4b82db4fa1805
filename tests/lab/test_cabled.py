"""Cables checked by what a real LLDP daemon hears on every switch of a lab."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import labs
from openmrc.base.faults import Schedule
from openmrc.fabric.cables.cabled import CablingReport, check_cabling
from openmrc.fabric.cables.lldp import read_neighbours
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab

_PATIENCE = 60.0  # s


@pytest.fixture
def daemons(lab: Lab) -> Iterator[Path]:
    """An lldpd on every node, its control socket at NODE in the folder."""
    with tempfile.TemporaryDirectory(prefix="openmrc-lldp-") as name:
        os.chmod(name, 0o755)  # lldpd gives its rights up
        yield from _running(lab, Path(name))


def _running(lab: Lab, folder: Path) -> Iterator[Path]:
    nodes = [*lab.nics(), *lab.switches()]
    started = []
    try:
        for node in nodes:
            # A file, because the daemon sets the machine's own name while it starts: a command in between is lost.
            settings = folder / f"{node}.conf"
            settings.write_text(f"configure system hostname {node}\nconfigure lldp tx-interval 1\n")
            command = ["lldpd", "-d", "-I", "p*", "-u", str(folder / node), "-O", str(settings)]
            started.append(labs.start(lab.name, node, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for node in nodes:
            _await(folder / node)
        yield folder
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(_PATIENCE)


def _await(control: Path) -> None:
    """Wait until the daemon answers at its control socket."""
    deadline = time.monotonic() + _PATIENCE
    while subprocess.run(["lldpctl", "-u", str(control)], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, f"{control.name}: lldpd does not answer"
        time.sleep(0.1)


def listen(lab: Lab, folder: Path) -> CablingReport:
    """Check the cables by what all switches hear now."""
    dumps = {}
    for switch in lab.switches():
        command = ["lldpctl", "-u", str(folder / switch), "-f", "json"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        dumps[switch] = read_neighbours(text, switch)
    return check_cabling(lab.topology, dumps)


@pytest.mark.needs("lldpd")
def test_what_lldpd_hears_is_what_was_planned_until_a_cable_is_pulled(lab: Lab, daemons: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while (report := listen(lab, daemons)).findings and time.monotonic() < deadline:
        time.sleep(0.5)
    assert (report.right, report.unchecked, report.findings) == (lab.topology.links // 2, 0, [])
    breaker = Breaker(lab.name)
    try:
        breaker.run(Schedule.parse("down: p0-t0-00<>p0-t1-01", "test"))
        while not (report := listen(lab, daemons)).findings and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        breaker.clear()
    assert [(each.kind, each.port, each.expected) for each in report.findings] == [
        ("missing", "p0-t0-00:3", "p0-t1-01:0")
    ]
