"""The live transport across the lab: files whole and streams whole, with cables pulled under them."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bench.lab.experiments.trial import stream
from harness import labs
from openmrc.base.faults import Schedule
from openmrc.lab import lifetime, record, status
from openmrc.lab.faults import Breaker, ExecutedStep
from openmrc.lab.layout import Lab
from tests.lab.conftest import fabric_file
from tests.lab.test_forwarding import set_offload

MRC = [sys.executable, "-m", "openmrc.programs.main"]
SEND_FILE = [sys.executable, "-m", "tests.lab.send_in_lab"]
_LONGEST = 300.0  # s; an engine may have to be compiled first


@pytest.fixture
def breaker(lab: Lab) -> Iterator[Breaker]:
    made = Breaker(lab.name)
    yield made
    made.clear()


def send_file(lab: Lab, folder: Path, size: int) -> None:
    """Send random bytes from h0 to h3, and compare what arrives."""
    content = random.Random(size).randbytes(size)
    file, copy = folder / "file.bin", folder / "copy.bin"
    file.write_bytes(content)
    receiver = labs.start(lab.name, "h3", [*SEND_FILE, "receive", str(copy)], stdout=-1, stderr=-1)
    try:
        sender = labs.start(lab.name, "h0", [*SEND_FILE, "send", str(file), "h3"], stdout=-1, stderr=-1)
        try:
            _, complaint = sender.communicate(timeout=_LONGEST)
        finally:
            sender.kill()  # one that hangs would keep its addresses from all tests after it
        assert sender.returncode == 0, complaint.decode()
        receiver.wait(_LONGEST)
    finally:
        receiver.kill()
        receiver.communicate()
    assert copy.read_bytes() == content


def test_a_file_arrives_whole_over_all_paths(lab: Lab, tmp_path: Path) -> None:
    before = status.status(lab.name, with_sids=False)
    send_file(lab, tmp_path, 4 << 20)
    after = status.status(lab.name, with_sids=False)
    for old, new in zip(before.links, after.links, strict=True):
        if new.name.startswith(("p0-t0-00>p0-t1", "p1-t0-00>p1-t1")):  # each uplink of the sender's T0s
            assert new.sent - old.sent > 100, new.name


@pytest.mark.needs("ethtool")
def test_a_file_arrives_whole_without_checksum_offload(lab: Lab, tmp_path: Path) -> None:
    set_offload(lab, "off")
    try:
        send_file(lab, tmp_path, 1 << 20)
    finally:
        set_offload(lab, "on")


def test_a_file_arrives_whole_where_the_last_hop_shifts_too(lab_name: str, tmp_path: Path) -> None:
    lifetime.up(fabric_file(tmp_path, lab_name, more="usid: {downlink: ua}\n"))
    lab = record.plan(lab_name, record.read(lab_name))
    send_file(lab, tmp_path, 1 << 20)
    shifted = [sid for sid in status.status(lab_name).sids if sid.action == "End.X"]
    assert sum(sid.packets for sid in shifted) > 200, "of the T0s' downlinks"


@pytest.mark.parametrize("where", ["p0-t0-00<>p0-t1-01", "h0 port 1", "p1-t1-00"])
def test_not_a_byte_is_lost_when_cables_are_pulled(lab: Lab, breaker: Breaker, where: str) -> None:
    schedule = Schedule.parse(f"at: 200ms, for: 300ms, every: 800ms, times: 2, down: {where}")

    def pull() -> list[ExecutedStep]:
        return breaker.run(schedule)

    trial = stream(breaker, "mrc", "h0", "h3", 2.5, pull)
    assert trial.is_whole
    assert trial.arrivals.sent == len(trial.times) > 50


def test_not_a_byte_is_lost_under_a_random_schedule(lab: Lab, breaker: Breaker) -> None:
    from bench.lab.experiments.schedules import random_schedule

    for seed in range(3):
        schedule = random_schedule(lab, seed, seconds=0.5)
        trial = stream(breaker, "mrc", "h0", "h3", 0.6, partial(breaker.run, schedule))
        breaker.clear()
        assert trial.is_whole, schedule


@pytest.mark.parametrize(
    "kind",
    [
        "tcp",
        pytest.param("mptcp", marks=pytest.mark.needs("mptcp")),
        pytest.param("iperf3", marks=pytest.mark.needs("iperf3")),
    ],
)
def test_the_kernels_transports_cross_the_same_paths(lab: Lab, breaker: Breaker, kind: str) -> None:
    trial = stream(breaker, kind, "h0", "h3", 0.5, list)
    assert trial.is_whole
    assert len(trial.times) > 50
