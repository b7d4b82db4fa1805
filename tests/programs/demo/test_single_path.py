"""TCP over one path: a dead plane drops everything, at both ends, and nothing says so."""

import errno
import socket
from itertools import pairwise

import pytest

from openmrc.programs.demo.result import Outage
from openmrc.programs.demo.single_path import set_down, transfer

ENDS = ("127.0.9.2", "127.0.9.1")


def test_nothing_passes_a_dead_plane_and_what_was_sent_passes_once_it_is_up() -> None:
    with socket.create_server((ENDS[1], 0)) as listener, socket.create_connection(listener.getsockname()) as sender:
        receiver, _ = listener.accept()
        with receiver:
            set_down((sender, receiver), True)
            sender.send(b"lost")
            receiver.settimeout(0.05)
            with pytest.raises(TimeoutError):
                receiver.recv(4)
            set_down((sender, receiver), False)
            receiver.settimeout(10)
            assert receiver.recv(4) == b"lost"


def test_a_transfer_with_an_outage_pauses_for_it_and_goes_on() -> None:
    outages = [Outage(plane=8, down=0.2, up=0.5), Outage(plane=7, down=0.6, up=1.4)]
    found = transfer(8, outages, 1.5, lambda sample: None)
    assert found.plane == 8
    assert found.longest_stall_ms >= 290
    assert {sample.gbps for sample in found.samples if 0.32 < sample.at < 0.5} <= {0.0}
    assert found.samples[-1].gbps > 0
    assert found.bytes > 1 << 20
    assert all(after.at - before.at > 0.09 for before, after in pairwise(found.samples))


def test_an_outage_without_an_end_ends_with_the_transfer() -> None:
    found = transfer(8, [Outage(plane=8, down=0.1, up=None)], 0.5, lambda sample: None)
    assert found.samples[-1].gbps == 0
    assert found.longest_stall_ms >= 350


def test_a_host_without_filters_cannot_take_a_plane_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(sockets: object, is_down: bool) -> None:
        raise OSError(errno.ENOPROTOOPT, "as gVisor and emulations say")

    monkeypatch.setattr("openmrc.programs.demo.single_path.set_down", refuse)
    with pytest.raises(OSError, match="emulations"):
        transfer(8, [], 0.5, lambda sample: None)
