"""Up and down: everything that was made is removed, by whatever way a lab ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness import labs
from openmrc.errors import ConfigError, MrcError
from openmrc.lab import kernel_maps, lifetime, namespaces, record, run
from openmrc.lab.namespaces import FILES, batch
from tests.lab.conftest import fabric_file, remove


def links_here() -> set[str]:
    return {each["ifname"] for each in json.loads(batch("ip", ["link show"]))}


def traces(name: str) -> list[str]:
    files = [str(path) for path in FILES.glob(f"mrc.{name}.*")] if FILES.is_dir() else []
    pinned = [str(path) for path in [lifetime.pinned_path(name)] if path.exists()]
    return [*namespaces.of_lab(name), *files, *pinned, *(each for each in record.recorded() if each == name)]


def test_nothing_is_left_of_a_lab_that_was_up(lab_name: str, tmp_path: Path) -> None:
    before = links_here()
    lifetime.up(fabric_file(tmp_path, lab_name))
    assert len(namespaces.of_lab(lab_name)) == 4 + 8 + 1  # hosts, switches, management
    assert links_here() == before  # even while it is up
    process = labs.start(lab_name, "h1", ["sleep", "600"])
    while not labs.processes_in(lab_name):
        assert process.poll() is None
        time.sleep(0.01)
    removed = lifetime.down(lab_name)
    assert removed == {"name": lab_name, "namespaces": 13, "processes_ended": 1}
    assert process.wait(60) == -signal.SIGTERM
    assert traces(lab_name) == []
    assert links_here() == before


ENTERS_LATE = """
import ctypes, sys, time
with open(sys.argv[1]) as namespace:
    print(flush=True)
    sys.stdin.readline()
    assert ctypes.CDLL(None).setns(namespace.fileno(), 0x40000000) == 0
print(flush=True)
time.sleep(600)
"""


def test_a_process_that_enters_while_a_lab_is_removed_is_ended_too(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifetime.up(fabric_file(tmp_path, lab_name, planes=1))
    name = namespaces.NAMED / namespaces.namespace(lab_name, "h0")
    process = subprocess.Popen(
        [sys.executable, "-c", ENTERS_LATE, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    stdout.readline()  # it has opened the namespace, as `ip netns exec` does before it enters
    removing = namespaces.batch

    def enter_first(*asked: Any, **options: Any) -> str:
        stdin.write("\n")
        stdin.flush()
        stdout.readline()
        return removing(*asked, **options)

    monkeypatch.setattr(namespaces, "batch", enter_first)
    try:
        assert lifetime.down(lab_name)["processes_ended"] == 1
        assert process.wait(60) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    assert traces(lab_name) == []


def test_two_labs_stand_side_by_side_and_go_one_by_one(lab_name: str, tmp_path: Path) -> None:
    other = f"{lab_name}-b"
    try:
        lifetime.up(fabric_file(tmp_path, lab_name, planes=1))
        lifetime.up(fabric_file(tmp_path, other, planes=1))
        assert {each["name"] for each in lifetime.up_now()} >= {lab_name, other}
        lifetime.down(lab_name)
        assert traces(lab_name) == []
        assert len(namespaces.of_lab(other)) == 4 + 4 + 1
    finally:
        remove(other)
    assert traces(other) == []


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_lab_that_was_killed_half_way_can_be_removed(lab_name: str, tmp_path: Path, share: float) -> None:
    fabric = fabric_file(tmp_path, lab_name, planes=4)
    of_all = 4 + 4 * 4 + 1
    program = "import sys; from pathlib import Path; from openmrc.lab import lifetime; lifetime.up(Path(sys.argv[1]))"
    process = subprocess.Popen([sys.executable, "-c", program, fabric], start_new_session=True)
    while process.poll() is None and len(namespaces.of_lab(lab_name)) < max(1, share * of_all):
        os.sched_yield()
    os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    process.wait()
    assert traces(lab_name)
    lifetime.down(lab_name)
    assert traces(lab_name) == []


HOLD = """
import signal, sys, time
from pathlib import Path
from harness import labs
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the shell that runs the tests ignores it
with labs.held(Path(sys.argv[1]), sys.argv[2]):
    print("up", flush=True)
    time.sleep(600)
"""


def hold(fabric: Path, name: str) -> subprocess.Popen[str]:
    """Start a program that keeps a lab up, and return it when the lab is."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, fabric, name], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_program_that_holds_a_lab_takes_it_down_when_it_is_ended(
    lab_name: str, tmp_path: Path, number: signal.Signals
) -> None:
    process = hold(fabric_file(tmp_path, lab_name, planes=1), lab_name)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert traces(lab_name) == []


def test_what_a_killed_program_left_is_replaced_by_the_next_of_its_name(lab_name: str, tmp_path: Path) -> None:
    fabric = fabric_file(tmp_path, lab_name, planes=1)
    first = hold(fabric, lab_name)
    first.kill()
    first.communicate()
    assert traces(lab_name)
    second = hold(fabric, lab_name)
    second.terminate()
    second.communicate(timeout=60)
    assert traces(lab_name) == []


def test_a_lab_without_its_record_is_found_by_its_namespaces(lab_name: str, tmp_path: Path) -> None:
    lifetime.up(fabric_file(tmp_path, lab_name, planes=1))
    record.remove(lab_name)
    assert [each["state"] for each in lifetime.up_now() if each["name"] == lab_name] == ["incomplete"]
    lifetime.down(lab_name)
    assert traces(lab_name) == []


def test_a_lab_whose_namespaces_are_gone_is_called_so_and_can_be_removed(lab_name: str, tmp_path: Path) -> None:
    lifetime.up(fabric_file(tmp_path, lab_name, planes=1))
    namespaces.remove(namespaces.of_lab(lab_name))  # as a restart of the machine does
    assert [each["state"] for each in lifetime.up_now() if each["name"] == lab_name] == ["gone"]
    with pytest.raises(MrcError, match=f"is gone.*`mrc lab down {lab_name}` removes its record"):
        run.command_line(lab_name, "h0", ["true"])
    assert lifetime.down(lab_name)["namespaces"] == 0
    assert traces(lab_name) == []


def test_a_lab_that_cannot_be_finished_leaves_nothing(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MrcError("no more")

    monkeypatch.setattr(kernel_maps, "write", fail)
    with pytest.raises(MrcError, match="no more"):
        lifetime.up(fabric_file(tmp_path, lab_name, planes=1))
    assert traces(lab_name) == []


UP_WITH_FEW_FILES = """
import resource, sys
from pathlib import Path
from openmrc.lab import lifetime
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
lifetime.up(Path(sys.argv[1]))
"""


def test_a_lab_of_more_cables_than_files_may_be_open_comes_up(lab_name: str, tmp_path: Path) -> None:
    fabric = fabric_file(tmp_path, lab_name, planes=4)  # 32 cables; iproute2 opens two files for each
    subprocess.run([sys.executable, "-c", UP_WITH_FEW_FILES, fabric], check=True)
    assert record.read(lab_name).ports == 64


def test_a_lab_of_a_shipped_fabric_comes_up_in_any_folder(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lifetime.up(Path("scenarios/fabrics/lab-slow.yaml"), lab_name)
    assert record.read(lab_name).ports == 2 * 4 * (8 + 2 * 4)  # ends of the cables of 8 NICs and 2 T0s on 4 planes


def test_a_record_that_cannot_be_written_leaves_nothing(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "write", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        lifetime.up(fabric_file(tmp_path, lab_name, planes=1))
    assert traces(lab_name) == []


def test_the_ports_of_a_lab_share_one_program(lab_name: str, tmp_path: Path) -> None:
    lifetime.up(fabric_file(tmp_path, lab_name, planes=1))
    assert not lifetime.pinned_path(lab_name).exists()
    programs, numbers = set(), set()
    for node, ports in (("h0", ["p0"]), ("p0-t0-00", ["p0", "p1", "p2", "p3"])):
        for port in ports:
            shown = json.loads(batch("tc", [f"filter show dev {port} egress"], namespaces.namespace(lab_name, node)))
            options = next(each["options"] for each in shown if "prog" in each.get("options", {}))
            programs.add(options["prog"]["id"])
            numbers.add(options["flowid"])
    assert (len(programs), len(numbers)) == (1, 5)


def test_progress_is_reported_to_the_last_namespace(lab_name: str, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    lifetime.up(fabric_file(tmp_path, lab_name, planes=1), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, 8) for done in range(1, 9)]


def test_a_name_is_taken_once(lab_name: str, tmp_path: Path) -> None:
    path = fabric_file(tmp_path, lab_name, planes=1)
    lifetime.up(path)
    with pytest.raises(MrcError, match=f"lab '{lab_name}' already exists.*mrc lab down {lab_name}"):
        lifetime.up(path)


def test_what_is_not_up_cannot_go_down(lab_rights: None) -> None:
    with pytest.raises(MrcError, match="no lab called 'nobody' is up"):
        lifetime.down("nobody")


@pytest.mark.parametrize("name", ["", "Lab", "a.b", "../x", "x" * 25])
def test_names_that_could_be_mistaken_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="lab name"):
        namespaces.check_lab_name(name)
