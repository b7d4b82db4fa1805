"""A cable is pulled during a training of two hosts: what `mrc train explain` says about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.programs.main import app
from tests.needs import require

pytestmark = pytest.mark.needs("torch", "jit", "root", "ip")
ROOT = Path(__file__).parents[3]
PLANES, PULLED, OUT_S = 4, 2, 0.6
LONGEST_S = 240.0  # an engine may have to be compiled first


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two namespaces with a cable and a subnet for each plane."""
    require("root", "ip")
    names = [f"mrc-pull-{os.getpid()}-{host}" for host in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for plane in range(PLANES):
            # An interface whose peer has its own index is no virtual one to the kernel, which may then tell 1 s late.
            ends = [("netns", name, "index", str(100 + 100 * host + plane)) for host, name in enumerate(names)]
            ip("link", "add", f"p{plane}", *ends[0], "type", "veth", "peer", "name", f"p{plane}", *ends[1])
            for host, name in enumerate(names):
                ip("-n", name, "address", "add", f"10.77.{plane}.{host + 1}/24", "dev", f"p{plane}")
                ip("-n", name, "link", "set", f"p{plane}", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def start(name: str, host: int, folder: Path) -> subprocess.Popen[str]:
    """Start a node of torchrun in a namespace; its record goes to the folder."""
    launch = f"-m torch.distributed.run --nnodes 2 --node-rank {host} --master-addr 10.77.0.1 --master-port 29511 -m"
    planes = ",".join(f"10.77.{plane}.{host + 1}" for plane in range(PLANES))
    recorder = {"MRC_RECORDER": "always", "MRC_RECORDER_DIR": str(folder / "records")}
    return subprocess.Popen(
        ["ip", "netns", "exec", name, sys.executable, *launch.split(), "tests.train.execution.pulled_job", str(folder)],
        env={**os.environ, "MRC_PLANES": planes, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "p0", **recorder},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait(is_true: Callable[[], bool], processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not is_true():
        assert time.monotonic() < deadline
        assert all(each.poll() is None for each in processes), "the job has ended"
        time.sleep(0.02)


def test_the_pulled_cable_is_explained_first_and_then_the_slow_steps(hosts: list[str], tmp_path: Path) -> None:
    processes = [start(name, host, tmp_path) for host, name in enumerate(hosts)]
    try:
        wait(lambda: all((tmp_path / f"begun{rank}").exists() for rank in range(2)), processes)
        ip("-n", hosts[0], "link", "set", f"p{PULLED}", "down")
        time.sleep(OUT_S)
        ip("-n", hosts[0], "link", "set", f"p{PULLED}", "up")
        (tmp_path / "over").touch()
        errors = [process.communicate(timeout=60)[1] for process in processes]
    finally:
        for process in processes:
            process.terminate()  # torchrun ends its workers
            process.communicate()
    assert [process.returncode for process in processes] == [0, 0], errors
    explained = CliRunner().invoke(app, ["train", "explain", str(tmp_path / "records")])
    assert explained.exit_code == 0
    lines = explained.stdout.splitlines()
    event = re.compile(
        rf"rank (\d): plane {PULLED} (down|silent) after [\d.]+ s, (?:for [\d.]+ s|until the end): "
        r"[\d,]+ packets lost; collective \d+ took [\d.]+ ms, usually [\d.]+ ms"
    )
    events = [found for line in lines if (found := event.fullmatch(line))]
    assert {found[1] for found in events if found[2] == "down"} == {"0", "1"}
    steps = [number for number, line in enumerate(lines) if re.match(r"rank \d, step \d+: ", line)]
    assert lines.index(events[0][0]) < lines.index(events[-1][0]) < steps[0], lines
