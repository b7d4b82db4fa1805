"""`mrc conform --local`: devices in namespaces reach the tester at one address a plane, as on a lab's switch."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from openmrc.conform.devices.contract import Description, Wanted
from openmrc.conform.devices.process import ProcessDevice
from tests.conform import bridged as lab

# One test each of a responder, a requester and two devices, and one in which a switch trims.
CHOSEN = ("6.2.2/1", "6.2.2/10", "6.2.2/15", "table-7-3/7")


def verdicts(stdout: str) -> dict[str, str]:
    record = json.loads(stdout)
    assert record["ok"], stdout
    return {test["id"]: test["verdict"] for test in record["tests"]}


@pytest.mark.needs("root", "ip", "jit")
@pytest.mark.parametrize(
    ("version", "device_port", "tester_port"),
    [(4, "", ""), (4, ":4791", ":4791"), (4, "", ":5791"), (6, "", ""), (6, "", ":5791")],
)
def test_two_hosts_reach_the_tester_at_one_address_a_plane(version: int, device_port: str, tester_port: str) -> None:
    def ported(address: str, port: str) -> str:
        return f"[{address}]{port}" if port and version == 6 else address + port

    with lab.hosts() as name:
        lab.switch(name)
        ends = [[ported(each, device_port) for each in lab.on_the_switch(host, version)] for host in (1, 2)]
        options = [f"--local={ported(each, tester_port)}" for each in lab.on_the_switch(9, version)]
        options += ["--device", lab.adapter(name, "a", ends[0]), "--peer", lab.adapter(name, "b", ends[1])]
        done = lab.conform(name, *options, "--json", *CHOSEN)
    found = verdicts(done.stdout)
    assert set(found) == set(CHOSEN)
    assert list(found.values()).count("pass") >= 3, found  # a busy host may make one inconclusive


@contextmanager
def terminal() -> Iterator[tuple[int, str]]:
    """A terminal: the person's end, and the name of the other."""
    person, own = os.openpty()
    tty.setraw(own)
    try:
        yield person, os.ttyname(own)
    finally:
        os.close(person)
        os.close(own)


class Person:
    """Does to a device what the terminal says, and answers what it asks."""

    def __init__(self, person: int, device: ProcessDevice) -> None:
        self._person, self._device = person, device
        self._shown = ""
        self._is_over = False
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def leave(self) -> None:
        self._is_over = True
        self._thread.join()

    def _work(self) -> None:
        while not self._is_over:
            if select.select([self._person], [], [], 0.1)[0]:
                self._shown += os.read(self._person, 1 << 14).decode()
                answer = self._answer()
                if answer is not None:
                    os.write(self._person, f"{answer}\n".encode())
                    self._shown = ""

    def _answer(self) -> str | None:
        last = self._shown.strip().rpartition("\n")[2]
        if last == "then Enter" and "Make a queue pair" in self._shown:
            self._described = self._device.open(Wanted())
            return ""
        if found := re.match(r"(QPN|first PSN|address|R_Key)\b.*:$", last):
            return str({"QPN": self._described.qpn, "first PSN": self._described.psn, "address": self._described.addr,
                        "R_Key": self._described.r_key}[found[1]])  # fmt: skip
        if last == "then Enter" and "Connect it to" in self._shown:
            self._device.connect(_peer(self._shown))
            return ""
        if found := re.match(r"Bytes (\d+) to (\d+) of the region", last):
            begin, end = int(found[1]), int(found[2])
            return self._device.memory(begin, end - begin + 1).hex()
        return None


def _peer(shown: str) -> Description:
    """Return what a person reads off the terminal about the tester."""
    found = re.search(
        r"Connect it to (?P<planes>.*) \(UDP\), QPN (?P<qpn>\S+), first PSN (?P<psn>\S+),\s+"
        r"MTU (?P<mtu>\d+), MPR (?P<mpr>\d+); it writes to (?P<addr>\S+) with R_Key (?P<r_key>\S+)",
        shown,
    )
    assert found is not None, shown
    numbers: dict[str, Any] = {name: int(text, 0) for name, text in found.groupdict().items() if name != "planes"}
    return Description(planes=found["planes"].split(", "), length=1 << 24, max_wimm=4, **numbers)


@pytest.mark.needs("root", "ip", "jit")
def test_a_person_operates_a_device_behind_a_switch() -> None:
    with lab.hosts() as name, terminal() as (person, own):
        lab.switch(name)
        planes = lab.on_the_switch(1, 4)
        device = ProcessDevice(shlex.split(lab.adapter(name, "a", planes)))
        operator = Person(person, device)
        try:
            by_hand = f"by-hand --terminal {own} " + " ".join(f"--plane {each}" for each in planes)
            locals_ = [f"--local={each}" for each in lab.on_the_switch(9, 4)]
            done = lab.conform(name, "--device", by_hand, *locals_, "--slack", "60", "--json", "6.2.2/1", "7.5.2/3")
        finally:
            operator.leave()
            device.stop()
    assert verdicts(done.stdout) == {"6.2.2/1": "pass", "7.5.2/3": "pass"}
