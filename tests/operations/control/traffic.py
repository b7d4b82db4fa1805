"""A lab slower than this machine's software, with `mrc perf` in both directions across it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.lab.agents import FABRIC, MRC
from harness import labs
from openmrc.ctl.client import CtlClient
from openmrc.lab import lifetime, record, run
from openmrc.lab.layout import Lab
from openmrc.lab.run import sockets_of
from openmrc.operations.control.controller import ControllerEvent, FabricController
from openmrc.telemetry import snapshot_ops
from openmrc.telemetry.snapshots import EndpointSnapshot
from tests.lab.conftest import remove
from tests.waiting import await_true

PORT = 18515


@contextmanager
def slow_lab(folder: Path, name: str) -> Iterator[Lab]:
    """Yield a lab of four hosts on two planes of two T0s and two T1s, 20 Mb/s a port."""
    file = folder / "slow.yaml"
    file.write_text(FABRIC.format(name=name))
    try:
        lifetime.up(file)
        yield record.plan(name, record.read(name))
    finally:
        remove(name)


@contextmanager
def perf(lab: Lab, seconds: float = 120.0, options: tuple[str, ...] = ()) -> Iterator[Path]:
    """Run `mrc perf` in both directions between h0 and h3; yield the folder of their controller sockets."""
    folder = sockets_of(lab.name)
    extra = {"MRC_CTL": str(folder), "SLURM_JOB_ID": "17"}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [labs.start(lab.name, "h3", [*MRC, "perf"], extra={**extra, "RANK": "3"}, **silent)]
    try:
        _await_listener(lab)
        client = [*MRC, "perf", "h3", "-b", "-D", str(seconds), *options]
        started.append(labs.start(lab.name, "h0", client, extra={**extra, "RANK": "0"}, **silent))
        await_true(lambda: len(snapshots(folder)) == 2 and all(sent(each) > 200 for each in snapshots(folder)), 100)
        yield folder
    finally:
        for each in reversed(started):
            each.terminate()
        for each in started:
            each.wait(20)


def _await_listener(lab: Lab) -> None:
    show = run.command_line(lab.name, "h3", ["ss", "-ltnH", f"sport = :{PORT}"])
    await_true(lambda: subprocess.run(show, capture_output=True, check=True).stdout != b"", 100)


def snapshots(folder: Path) -> list[EndpointSnapshot]:
    found = []
    for path in sorted(folder.glob("*.sock")):
        with CtlClient(path) as client:
            found.append(client.call(snapshot_ops.snapshot, with_evs=True))
    return found


def sent(endpoint: EndpointSnapshot) -> int:
    return sum(ev.sent for pair in endpoint.queue_pairs for ev in pair.evs)


def stepped(controller: FabricController, seconds: float) -> list[ControllerEvent]:
    """Let a controller run for a time; return what it did."""
    events, end = list[ControllerEvent](), time.monotonic() + seconds
    while time.monotonic() < end:
        events += controller.step(time.monotonic())
        if not controller.probes:
            time.sleep(0.02)
    return events


def until(controller: FabricController, what: str, seconds: float) -> list[ControllerEvent]:
    """Let a controller run until it says something, and return all it said."""
    events, end = list[ControllerEvent](), time.monotonic() + seconds
    while not any(event.what == what for event in events):
        assert time.monotonic() < end, f"no {what!r} in time, but {events}"
        events += controller.step(time.monotonic())
        if not controller.probes:
            time.sleep(0.02)
    return events
