"""`mrc send` and `mrc recv` as two processes."""

import hashlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from openmrc.apps.transfer.transfer import TransferResult
from openmrc.cli.main import app
from openmrc.errors import ConfigError

from .in_process import run_here
from .processes import finish, mrc, receiving, run

SPOILT = "loss: 0.5%, corruption: 0.5%, duplicate: 0.5%, reorder: 0.5%"


def decoded(line: str) -> TransferResult:
    return msgspec.json.decode(line, type=TransferResult)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def made(path: Path, size: int) -> Path:
    path.write_bytes(random.Random(size).randbytes(size))
    return path


def test_files_arrive_whole_though_packets_are_lost_spoilt_doubled_and_overtaken(tmp_path: Path, out: Path) -> None:
    files = [made(tmp_path / name, size) for name, size in (("big", 9_000_001), ("empty", 0), ("one", 1))]
    with receiving(out, "--once", "--planes", 4, "--impair", SPOILT) as (receiver, port):
        code, said, complaints = run(
            "send", *files, "127.0.0.1", "-p", port, "--planes", 4, "--json", "--impair", SPOILT
        )
        received = finish(receiver)
    assert (code, received[0]) == (0, 0), complaints + received[2]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {path.name: path.read_bytes() for path in files}
    ours, theirs = decoded(said), decoded(received[1])
    assert ours.files == theirs.files
    assert [file.sha256 for file in ours.files] == [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    assert ours.ok
    assert ours.bytes == theirs.bytes == 9_000_002
    assert ours.retransmitted_packets > 0
    assert len(ours.planes) == 4
    assert all(plane.sent_packets > 0 for plane in ours.planes)


def test_without_json_a_person_reads_what_came(tmp_path: Path, out: Path) -> None:
    with receiving(out, "--once", "--planes", 1) as (receiver, port):
        code, said, _ = run_here("send", made(tmp_path / "a", 100), "127.0.0.1", "-p", port, "--planes", 1)
        finish(receiver)
    assert code == 0
    assert said.startswith("OK sent 1 file, 100 bytes in ")


# What is stopped, how, and the exit codes of both ends afterwards.
STOPS = {
    "sender killed": ("send", signal.SIGKILL, -9, 1),
    "receiver killed": ("recv", signal.SIGKILL, 1, -9),
    "Ctrl-C at the sender": ("send", signal.SIGINT, 130, 1),
    "SIGTERM at the receiver": ("recv", signal.SIGTERM, 1, 143),
}


@pytest.mark.parametrize("stop", STOPS)
def test_when_one_end_stops_the_other_says_so_and_nothing_half_done_stays(tmp_path: Path, out: Path, stop: str) -> None:
    who, how, sender_code, receiver_code = STOPS[stop]
    slow = "rate: 40Mbps"
    with receiving(out, "--once", "--planes", 1, "--impair", slow) as (receiver, port):
        sender = mrc("send", made(tmp_path / "a", 30 << 20), "127.0.0.1", "-p", port, "--planes", 1, "--json")
        _until_moving(sender)
        stopped, other = (sender, receiver) if who == "send" else (receiver, sender)
        stopped.send_signal(how)
        ends = finish(sender), finish(receiver)
    assert (ends[0][0], ends[1][0]) == (sender_code, receiver_code), ends
    survivor = ends[1] if who == "send" else ends[0]
    result = decoded(survivor[1])
    assert not result.ok
    assert result.error is not None
    assert "127.0.0.1" in result.error or "127.0.1." in result.error
    if how == signal.SIGKILL:
        assert "packets" in result.error  # the last progress
    else:
        assert "gave up" in result.error
    assert list(out.iterdir()) == []
    assert other.returncode == 1


def _until_moving(sender: subprocess.Popen[bytes]) -> None:
    """Read its progress until some of the file has gone."""
    assert sender.stderr is not None
    for line in sender.stderr:
        share, percent, _ = line.decode().strip().partition("%")
        if percent and share.isdigit() and int(share) > 0:
            return
    raise AssertionError("the sender ended before it sent")


def test_wrong_calls_are_refused_before_anything_moves(tmp_path: Path) -> None:
    for arguments, complaint in (
        (("send", tmp_path / "nosuch", "127.0.0.1"), "nosuch: cannot be read"),
        (("send", tmp_path, "127.0.0.1"), "not a regular file"),
        (("send", "127.0.0.1"), "at least one FILE"),
        (("recv", "--out", "/dev/null"), "--out: "),
        (("recv", "--out", tmp_path, "--max-size", "big"), "--max-size: 'big'"),
        (("recv", "--out", tmp_path, "--impair", "los: 1%"), "unknown word 'los'"),
    ):
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert isinstance(result.exception, ConfigError)
        assert result.stdout == ""
        assert complaint in str(result.exception)


def test_a_sender_that_is_suspended_for_less_than_the_time_out_goes_on(tmp_path: Path, out: Path) -> None:
    file = made(tmp_path / "big", 40_000_000)
    slow = "rate: 40Mbps"  # two planes: four seconds
    with receiving(out, "--once", "--planes", 2, "--impair", slow) as (receiver, port):
        sender = mrc("send", file, "127.0.0.1", "-p", port, "--planes", 2, "--json")
        _until_moving(sender)
        os.kill(sender.pid, signal.SIGSTOP)
        time.sleep(6.0)  # longer than the retry budget of a connection is without --timeout
        os.kill(sender.pid, signal.SIGCONT)
        code, said, complaints = finish(sender)
        received = finish(receiver)
    assert (code, received[0]) == (0, 0), complaints + received[2]
    assert decoded(said).longest_stall_ms > 5000, "it was not moving when it was suspended"
    assert (out / "big").read_bytes() == file.read_bytes()


def test_recv_makes_its_folder_and_send_says_whom_it_waits_for(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    with receiving(out, "--once", "--planes", 1) as (receiver, port):
        code, _, complaints = run_here("send", made(tmp_path / "a", 100), "127.0.0.1", "-p", port, "--planes", 1)
        finish(receiver)
    assert code == 0
    assert f"waiting for mrc recv at 127.0.0.1, TCP port {port}" in complaints
    assert (out / "a").stat().st_size == 100


def test_a_capture_is_reported_when_the_command_ends(tmp_path: Path, out: Path) -> None:
    file = tmp_path / "sent.pcapng"
    with receiving(out, "--once", "--planes", 1) as (receiver, port):
        code, _, complaints = run_here(
            "send", made(tmp_path / "a", 10_000), "127.0.0.1", "-p", port, "--planes", 1, "--capture", file
        )
        finish(receiver)
    assert code == 0
    assert f"{file}: all " in complaints
