"""Agents and a controller in namespaces of a lab's hosts, TLS over the management network, a broken cable."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import labs
from openmrc.base.faults import Schedule
from openmrc.ctl import endpoint_ops
from openmrc.ctl.client import CtlClient
from openmrc.lab import run
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab
from openmrc.lab.run import sockets_of
from openmrc.operations.fleets.agents.certificates import CONTROLLER
from tests.operations.control.traffic import FABRIC, MRC, perf, slow_lab
from tests.waiting import await_true

pytestmark = pytest.mark.needs("lab")
CABLE, T0, LONG = "p0-t0-00<>p0-t1-01", "p1-t0-01", "p1-t0-00>p1-t1-00"
PIECES = {CABLE, "p0-t0-00>p0-t1-01", "p0-t1-01>p0-t0-00"}  # of the cable: one direction's losses may be found first
ONE_PLANE_CARRIES = ("-t", "1", "-s", "4K")  # beside a dead T0: ports that are full delay or drop what they carry
HOSTS = ("h0", "h1", "h2", "h3")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with slow_lab(tmp_path_factory.mktemp("lab"), f"t{os.getpid()}-agents") as lab:
        yield lab


@contextmanager
def agents(lab: Lab, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent in each host, and a controller that denies in h2; yield the controller."""
    authority = pytest.importorskip("openmrc.operations.fleets.agents.authority")
    authority.make_certificates(folder / "certs", lab.topology.fabric.name, [CONTROLLER, *HOSTS], 1)
    where, fabric = f"{lab.management(2)}:18517", str(folder / "slow.yaml")
    (folder / "slow.yaml").write_text((folder.parent / "fabric.yaml").read_text())
    certs = ["--certs", str(folder / "certs")]
    watch = [*MRC, "map", "watch", fabric, "--listen", where, "--ctl", str(folder / "state"), *certs,
             "--apply", "--json"]  # fmt: skip
    with (folder / "said").open("wb") as said, (folder / "errors").open("wb") as errors:
        controller = labs.start(lab.name, "h2", watch, stdout=said, stderr=errors)
    started = [controller]
    try:
        for host in HOSTS:
            words = [*MRC, "map", "agent", fabric, host, "--controller", where, *certs, "--ctl"]
            started.append(labs.start(lab.name, host, [*words, str(sockets_of(lab.name))]))
        yield controller
    finally:
        for each in reversed(started):
            each.terminate()
        for each in started:
            each.wait(20)


@contextmanager
def long_packets_dropped(lab: Lab) -> Iterator[None]:
    """Have what is longer than 1 KB dropped where a direction arrives."""
    port = next(cable.upper for cable in lab.cables if lab.topology.link_name(cable.lower.link) == LONG)
    chain = f"type filter hook ingress device {port.interface} priority 0"
    rule = f"table netdev long {{ chain c {{ {chain}; meta length > 1024 drop; }}; }}"
    subprocess.run(run.command_line(lab.name, port.node, ["nft", rule]), check=True)
    try:
        yield
    finally:
        subprocess.run(run.command_line(lab.name, port.node, ["nft", "delete table netdev long"]), check=True)


def effects(folder: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in (folder / "said").read_text().splitlines()]
    return {line["part"]: line["verdict"]["effect"] for line in lines if line["what"] == "named" and line["verdict"]}


def named(folder: Path) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in (folder / "said").read_text().splitlines()]
    return [(line["part"], line["outcome"]) for line in lines if line["what"] == "named"]


def await_named(folder: Path, before: int) -> str:
    """Return the part that is named and denied next."""

    def denied() -> list[str]:
        return [part for part, outcome in named(folder)[before:] if outcome == "denied"]

    await_true(lambda: bool(denied()), 20)
    return denied()[0]


def denials(folder: Path) -> int:
    found = 0
    for path in sorted(folder.glob("*.sock")):
        with CtlClient(path) as client:
            found += len(client.call(endpoint_ops.denials).denied)
    return found


def test_a_silent_t0_is_named_once_and_a_silent_cable_is_denied_through_agents_and_lapses_without_a_controller(
    lab: Lab, tmp_path: Path
) -> None:
    (tmp_path.parent / "fabric.yaml").write_text(FABRIC.format(name=lab.name))
    breaker = Breaker(lab.name)
    try:
        with perf(lab, options=ONE_PLANE_CARRIES) as sockets, agents(lab, tmp_path) as controller:
            await_true(lambda: "watching" in (tmp_path / "errors").read_text(), 60)
            time.sleep(2.0)
            breaker.run(Schedule.parse(f"loss: 100%, on: {T0}"))
            await_true(lambda: bool(named(tmp_path)), 20)
            time.sleep(2.0)
            assert [part for part, _ in named(tmp_path)] == [T0]
            breaker.clear()
            with long_packets_dropped(lab):
                await_true(lambda: LONG in effects(tmp_path), 40)
            assert effects(tmp_path)[LONG] == "one size"
            before = named(tmp_path)
            breaker.run(Schedule.parse(f"loss: 100%, on: {CABLE}"))
            assert await_named(tmp_path, len(before)) in PIECES
            await_true(lambda: denials(sockets) > 0, 20)
            controller.kill()
            assert {part for part, _ in named(tmp_path)[len(before) :]} <= PIECES
            await_true(lambda: denials(sockets) == 0, 40)
    finally:
        breaker.clear()
