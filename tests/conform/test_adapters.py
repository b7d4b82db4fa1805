"""Adapters that ship beside our endpoint's: a RoCEv2 sender as negative control, and a person at a terminal."""

from __future__ import annotations

import os
import select
import sys
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmrc.conform.adapters.by_hand import seen_in_capture
from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.devices.contract import Description, DeviceUnsupportedError, Wanted, WriteOrder
from openmrc.conform.devices.process import ProcessDevice
from openmrc.conform.devices.virtual import R_KEY, REGION_VA
from openmrc.conform.execution import TestExecution
from openmrc.conform.media.sockets import SocketMedium, own_loopback
from openmrc.conform.reports import write_capture
from openmrc.conform.results import TestVerdict
from openmrc.conform.suite import run_virtually

PEER = Description(planes=["127.0.0.8"], qpn=9, psn=5, addr=0x5000, r_key=6, length=64, mtu=256, mpr=8, max_wimm=1)


class OperatedTerminal:
    """A terminal with a person who types ahead."""

    def __init__(self, *options: str) -> None:
        self.shown = ""
        self.person, self._own = os.openpty()
        tty.setraw(self._own)
        words = ["--plane", "127.0.0.9", "--terminal", os.ttyname(self._own), *options]
        self.device = ProcessDevice([sys.executable, "-m", "openmrc.conform.adapters.by_hand", *words], 20.0)

    def types(self, *lines: str) -> None:
        os.write(self.person, "".join(f"{line}\n" for line in lines).encode())

    def answers(self, question: str, *lines: str) -> None:
        """Type as soon as a question is shown: what is typed before is told between requests."""

        def typing() -> None:
            if self.shows(question):
                self.types(*lines)

        threading.Thread(target=typing, daemon=True).start()

    def shows(self, text: str) -> bool:
        """Whether the terminal comes to show a text: a read returns what has been written so far."""
        while text not in self.shown and select.select([self.person], [], [], 10.0)[0]:
            self.shown += os.read(self.person, 1 << 14).decode()
        return text in self.shown

    def close(self) -> None:
        self.device.stop()
        os.close(self.person)
        os.close(self._own)


@pytest.fixture
def terminal() -> Iterator[OperatedTerminal]:
    made = OperatedTerminal("--qpn", "0x11", "--psn", "7", "--addr", "0x1000")
    yield made
    made.close()


def test_a_person_is_told_what_to_do_and_asked_for_what_is_not_known(terminal: OperatedTerminal) -> None:
    terminal.types("", "", "", "", "what?", "0x33")
    described = terminal.device.open(Wanted(planes=1, bytes=4096))
    assert (described.qpn, described.psn, described.addr, described.r_key) == (0x11, 7, 0x1000, 0x33)
    assert terminal.shows("a region of 4096 zero bytes that the peer may write")
    assert terminal.shows("QPN [0x11]:")
    assert terminal.shows("a number, such as 0x1234")


def test_a_person_reports_completions_between_and_during_requests(terminal: OperatedTerminal) -> None:
    terminal.types("", "", "", "", "5")
    terminal.device.open(Wanted(planes=1))
    terminal.answers("trimmed packets\nthen Enter", "")
    terminal.device.connect(PEER)
    terminal.answers("Enter, and then post", "c RETRY_EXC_ERR", "r 0x20 64", "")
    terminal.device.write(WriteOrder(length=64, immediate=3))
    events = terminal.device.events()
    assert [(each.event, each.status) for each in events] == [("completion", "RETRY_EXC_ERR"), ("receive", "SUCCESS")]
    assert (events[1].immediate, events[1].length) == (0x20, 64)
    assert terminal.shows("Connect it to 127.0.0.8 (UDP), QPN 0x9, first PSN 0x5")


def test_a_person_may_say_that_the_device_cannot(terminal: OperatedTerminal) -> None:
    terminal.types("", "", "", "", "5", "-")
    terminal.device.open(Wanted(planes=1))
    with pytest.raises(DeviceUnsupportedError, match="the person said"):
        terminal.device.set_port(0, up=False)


@pytest.mark.parametrize(
    ("test", "known"),
    [("6.3.1/1", {"qpn", "addr", "r_key"}), ("7.5.2/12", {"psn"})],
)
def test_parameters_are_seen_in_a_capture(test: str, known: set[str], tmp_path: Path) -> None:
    path = tmp_path / "earlier.pcapng"
    result = run_virtually(chosen(shipped_tests(), [test])[0])
    write_capture(result, path)
    found = seen_in_capture(path, [str(result.links[0][plane].there) for plane in range(2)])
    assert set(found) == known
    (psn,) = [each.message.bth.psn for each in result.entries if each.message is not None][:1]
    values = {"qpn": found.get("qpn"), "addr": REGION_VA, "r_key": R_KEY, "psn": psn}
    assert found == {name: values[name] for name in known}


def test_a_sender_of_rocev2_passes_no_test() -> None:
    device = ProcessDevice([sys.executable, "-m", "openmrc.conform.adapters.rocev2"])
    medium = SocketMedium(own_loopback(2), [device])
    try:
        for test in chosen(shipped_tests(), ["6.2.2/10", "7.4.4/1", "6.1/10", "6.3.1/16"]):
            result = TestExecution(test, medium, [device]).run()
            assert result.verdict in (TestVerdict.FAIL, TestVerdict.INCONCLUSIVE), test.id
    finally:
        device.stop()
        medium.close()
