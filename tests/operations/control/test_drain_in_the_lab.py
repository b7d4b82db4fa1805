"""Drains under real traffic: nothing is lost, nothing crosses what is drained, and they survive a controller."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.base.faults import Schedule
from openmrc.ctl import endpoint_ops
from openmrc.ctl.client import CtlClient
from openmrc.fabric.model.naming import links_at
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import await_ports, namespace
from openmrc.lab.status import status
from openmrc.operations.control.controllers import lab_controller, packets_of
from openmrc.operations.fleets.state_folder import StateFolder
from openmrc.programs.main import app
from tests.operations.control.traffic import perf, slow_lab, snapshots, until
from tests.waiting import await_true

pytestmark = pytest.mark.needs("lab")
SWITCH = "p0-t1-01"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with slow_lab(tmp_path_factory.mktemp("lab"), f"t{os.getpid()}-drain") as lab:
        yield lab


@contextmanager
def running_controller(lab: Lab) -> Iterator[None]:
    """Be the controller in another thread; when it ends, nothing is tidied up."""
    stop = threading.Event()
    with lab_controller(lab.name) as controller:

        def work() -> None:
            while not stop.is_set():
                controller.step(time.monotonic())

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def command(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output + str(done.exception or "")


def lost(lab: Lab) -> int:
    """Return the packets that any link of the lab lost.

    What endpoints believe lost is no measure here: a busy machine makes them send a packet again now and then. Nor is
    `flushed`: on a link that was ever down, it holds what moves while the counters are read.
    """
    return sum(link.losses.total - link.losses.flushed for link in status(lab.name, with_sids=False).links)


def goodput(folder: Path) -> float:
    """Return Mb/s of payload that both endpoints sent and had acknowledged in a second."""

    def sent() -> int:
        return sum(pair.sent_bytes - pair.inflight_bytes for each in snapshots(folder) for pair in each.queue_pairs)

    before, begun = sent(), time.monotonic()
    time.sleep(1.0)
    return (sent() - before) * 8e-6 / (time.monotonic() - begun)


def test_a_switch_is_drained_taken_down_and_used_again_without_a_loss(lab: Lab) -> None:
    links = links_at(lab.topology, SWITCH).tolist()
    packets = packets_of(lab.name, lab)
    breaker = Breaker(lab.name)
    with perf(lab) as folder:
        with running_controller(lab):
            before, whole = lost(lab), max(goodput(folder) for _ in range(4))
            assert command("drain", lab.name, SWITCH, "--apply", "--json")[0] == 0
            count = packets(links)
            # The ports of the hosts are the bottleneck, with one T1 as with two. A busy machine has slower seconds.
            await_true(lambda: goodput(folder) > 0.98 * whole)
            assert packets(links) == count, "neither data nor acknowledgements nor probes"
            breaker.run(Schedule.parse(f"down: {SWITCH}"))
        with running_controller(lab):  # the next controller goes on
            time.sleep(1.5)
            assert packets(links) == count
            assert lost(lab) == before
            breaker.clear()
            for switch in (SWITCH, "p0-t0-00", "p0-t0-01"):
                await_ports(namespace(lab.name, switch), [p.interface for p in lab.ports() if p.node == switch])
            before = lost(lab)
            assert command("undrain", lab.name, SWITCH, "--json")[0] == 0
            time.sleep(1.0)
            assert packets(links) > count
            assert lost(lab) == before
    assert StateFolder(folder).drains() == []


def test_what_would_take_the_last_path_is_refused_before_anything_is_done(lab: Lab) -> None:
    code, said = command("drain", lab.name, "plane 0", "plane 1", "--apply", "--keep", "0")
    assert code == 1
    assert "pairs would lose their last path" in said
    with running_controller(lab):
        assert command("drain", lab.name, "plane 0", "--apply")[0] == 0
        code, said = command("drain", lab.name, "plane 1", "--apply", "--keep", "0")
        assert (code, "pairs would lose their last path" in said) == (1, True), "with what is drained already"
        assert command("undrain", lab.name, "plane 0")[0] == 0
    assert "'plane 0' is not drained" in command("undrain", lab.name, "plane 0")[1]


def test_without_a_controller_undrain_lifts_what_one_left_behind(lab: Lab) -> None:
    with perf(lab) as folder:
        with running_controller(lab):
            assert command("drain", lab.name, SWITCH, "--apply")[0] == 0
        assert denied(folder) > 0
        assert command("undrain", lab.name, SWITCH)[0] == 0
        assert denied(folder) == 0


def test_a_newer_controller_fences_this_one_off(lab: Lab) -> None:
    with perf(lab) as folder:
        with running_controller(lab):
            assert command("drain", lab.name, SWITCH, "--apply")[0] == 0
        with lab_controller(lab.name) as controller:
            for path in folder.glob("*.sock"):
                with CtlClient(path) as client:
                    client.call(endpoint_ops.renew, epoch=controller.denials.epoch + 5)
            until(controller, "fenced", 5)
            assert controller.is_fenced


def denied(folder: Path) -> int:
    return sum(ev.state == "DENIED" for each in snapshots(folder) for pair in each.queue_pairs for ev in pair.evs)
