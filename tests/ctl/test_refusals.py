"""What an endpoint refuses over its controller socket, each for its documented reason, and a client's own errors."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openmrc.ctl import denials, endpoint_ops, profile_ops
from openmrc.ctl.channel import Channel
from openmrc.ctl.client import CtlClient
from openmrc.ctl.denials import Denial, Denials
from openmrc.ctl.messages import CtlAnswer, CtlGreeting, CtlMessage
from openmrc.ctl.profile_ops import EvOpRequest
from openmrc.errors import CallError, InvalidArgumentError, NotFoundError, PeerError, TooBigError
from tests.ctl.endpoints import opened


def replaced(**words: object) -> dict[str, Any]:
    return {"number": 1, "operation": "replace", "entries": [msgspec.convert(words, EvOpRequest)]}


REFUSED: list[tuple[Any, dict[str, Any], type[CallError], str]] = [
    (endpoint_ops.create_events, {"capacity": 0}, InvalidArgumentError, "capacity: 0"),
    (endpoint_ops.destroy_events, {"queue": 9}, NotFoundError, "there is no 9"),
    (endpoint_ops.poll_events, {"queue": 9}, NotFoundError, "there is no 9"),
    (endpoint_ops.poll_events, {"queue": 1, "wait": 5.5}, InvalidArgumentError, r"wait: 5\.5 s is not in 0..5"),
    (endpoint_ops.poll_events, {"queue": 1, "wait": -1.0}, InvalidArgumentError, r"wait: -1\.0 s"),
    (endpoint_ops.poll_events, {"queue": 1, "most": 0}, InvalidArgumentError, "most: 0 is below 1"),
    (endpoint_ops.renew, {"epoch": -1}, InvalidArgumentError, "epoch: -1"),
    (endpoint_ops.renew, {"lease": 0.0}, InvalidArgumentError, r"lease: 0\.0 s"),
    (endpoint_ops.renew, {"lease": 61.0}, InvalidArgumentError, r"lease: 61\.0 s"),
    (endpoint_ops.deny, {"denials": [], "epoch": 1 << 63}, InvalidArgumentError, "epoch: 9223372036854775808"),
    (profile_ops.modify_cc, {"number": 17}, InvalidArgumentError, r"17 is not in 1\.\.16"),
    (profile_ops.modify_format, {"number": 1, "mode": "roce"}, InvalidArgumentError, "mode: 'roce'"),
    (profile_ops.modify_ev_profile, {"number": 1, "operation": "swap"}, InvalidArgumentError,
     "operation: 'swap' is not one of"),
    (profile_ops.modify_ev_profile, replaced(ev={"ev": "green", "port": 1}), InvalidArgumentError,
     r"entries\[0\]\.ev: 'green' is not hexadecimal"),
    (profile_ops.modify_ev_profile, replaced(ev={"ev": "00" * 33, "port": 1}), InvalidArgumentError,
     "33 bytes; an EV has 32"),
    (profile_ops.modify_ev_profile, replaced(ev={}, new={"ev": "c0", "port": 1}), InvalidArgumentError,
     "REPLACE_EV: the profile has no EV array yet"),
    (profile_ops.use_profiles, {"cc": 2}, InvalidArgumentError, "queue pairs can use it when ONLINE"),
]  # fmt: skip


def test_each_wrong_argument_is_refused_for_its_reason_and_the_endpoint_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path / "ctl", 233) as (_, client):
        for operation, request, error, text in REFUSED:
            with pytest.raises(error, match=text):
                client.call(operation, **request)
        assert client.call(endpoint_ops.ports).ports


def test_an_endpoint_holds_so_many_denials_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "MOST_DENIALS", 2)
    held = Denials()
    held.add(Denial(port=1, ev=1), 10.0)
    held.check_room([Denial(port=1, ev=1), Denial(port=1, ev=2)])  # one of them is held already
    with pytest.raises(TooBigError, match="denials: 3; an endpoint holds 2") as refused:
        held.check_room([Denial(port=1, ev=2), Denial(port=1, ev=3)])
    assert refused.value.needed == 2


def served_by(folder: Path, *answers: CtlMessage | None) -> Path:
    """Answer the messages of one client by these; None ends the connection."""
    path = folder / "odd.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def serve() -> None:
        with listener, listener.accept()[0] as sock:
            channel = Channel(sock)
            for answer in answers:
                channel.receive(1 << 20, 5.0, 5.0)
                if answer is None:
                    return
                channel.send(answer, 5.0)
            while sock.recv(4096):
                pass

    threading.Thread(target=serve, daemon=True).start()
    return path


def test_a_client_says_what_is_odd_about_who_answers(tmp_path: Path) -> None:
    greeting = CtlGreeting(oldest=1, newest=1)
    for index, (answers, text) in enumerate(
        [
            ((CtlAnswer(number=0, body=msgspec.Raw(b"\x80")),), "answered a greeting by CtlAnswer"),
            ((None,), "closed the connection"),
            ((greeting, CtlAnswer(number=7, body=msgspec.Raw(b"\x80"))), "ports: answered by something else"),
            ((greeting, CtlAnswer(number=1, body=msgspec.Raw(b"\x01"))), "ports: "),
            ((greeting,), "no answer within 0.2 s"),
        ]
    ):
        folder = tmp_path / str(index)
        folder.mkdir()
        with pytest.raises(PeerError, match=text), CtlClient(served_by(folder, *answers), 0.2) as client:
            client.call(endpoint_ops.ports)
