"""Work orders arrive signed, again until they are taken, and carry back a ticket; the receiver is an HTTP server."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import ConfigError
from openmrc.operations.control import order_hook
from openmrc.operations.control.controller import ControllerEvent, ControllerEventKind
from openmrc.operations.control.order_hook import OrderHook, key_in
from openmrc.operations.diagnosis.verdicts import FaultVerdict, WorkOrder
from openmrc.operations.fleets.state_folder import StateFolder
from tests.waiting import await_true

KEY = b"sixteen bytes at least"


class Desk:
    """A receiver of orders; `answers` are its next status codes, 200 when there are none left; 0: no HTTP."""

    def __init__(self, answers: list[int]) -> None:
        self.answers, self.got = answers, list[tuple[str, bytes]]()
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                desk.got.append((self.headers["X-MRC-Signature"], body))
                status = desk.answers.pop(0) if desk.answers else 200
                if status == 0:
                    self.wfile.write(b"220 ready for mail\r\n")
                    return
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b'{"ticket": "NET-4711"}')

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/orders"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


@contextmanager
def desk(*answers: int) -> Iterator[Desk]:
    made = Desk(list(answers))
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_hook, "FIRST_BACK_OFF_S", 0.01)


def event(part: str = "a<>b", times: int = 1) -> ControllerEvent:
    verdict = FaultVerdict(part=part, kind="cable", plane=0, effect="dead", confidence=1.0, rate=1.0,
                           evidence_nats=40.0, sent=9, lost=9, window_ps=1, at_ps=1)  # fmt: skip
    order = WorkOrder(verdict=verdict, cables=(), more=0, times=times)
    return ControllerEvent(at=1.0, what=ControllerEventKind.WORK_ORDER, part=part, order=order)


def ticket(found: ControllerEvent) -> str:
    assert found.order is not None
    return found.order.ticket


def test_an_order_is_sent_until_it_is_taken_and_has_a_ticket_from_then_on(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "ctl")
    with desk(503, 0, 500) as receiver:
        hook = OrderHook(receiver.url, KEY, "lab", state)
        assert ticket(hook.take(event())) == ""
        await_true(lambda: len(receiver.got) == 4)
        await_true(lambda: ticket(hook.take(event(times=2))) == "NET-4711")
        hook.close()
    assert len({each["id"] for each in receiver.bodies()}) == 1, "the receiver knows it again"
    assert receiver.bodies()[0]["order"]["verdict"]["part"] == "a<>b"
    assert b'"order sent"' in (state.path / "audit.jsonl").read_bytes()


def test_the_signature_is_that_of_openssl(tmp_path: Path) -> None:
    with desk() as receiver:
        hook = OrderHook(receiver.url, KEY, "lab", StateFolder(tmp_path / "ctl"))
        hook.take(event())
        await_true(lambda: bool(receiver.got))
        hook.close()
    header, body = receiver.got[0]
    at, _, digest = header.partition(",v1=")
    command = ["openssl", "dgst", "-sha256", "-hmac", KEY.decode(), "-r"]
    text = at.removeprefix("t=").encode() + b"." + body
    assert subprocess.run(command, input=text, capture_output=True, check=True).stdout.split()[0].decode() == digest


def test_what_is_not_sent_is_sent_by_the_next_controller(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "ctl")
    with desk() as receiver:
        url = receiver.url
    gone = OrderHook(url, KEY, "lab", state)
    gone.take(event("c>d"))
    gone.close()
    with desk() as receiver:
        hook = OrderHook(receiver.url, KEY, "lab", state)
        await_true(lambda: bool(receiver.got))
        hook.close()
    assert receiver.bodies()[0]["order"]["verdict"]["part"] == "c>d"


def test_a_receiver_that_does_not_want_it_is_not_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with desk(403, 200) as receiver:
        hook = OrderHook(receiver.url, KEY, "lab", StateFolder(tmp_path / "ctl"))
        hook.take(event())
        await_true(lambda: bool(caplog.messages))
        hook.take(event("other"))
        await_true(lambda: len(receiver.got) == 2)
        hook.close()
    assert [each["order"]["verdict"]["part"] for each in receiver.bodies()] == ["a<>b", "other"]


def test_keys_are_long_and_their_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(ConfigError, match="No such file"):
        key_in(path)
    path.write_bytes(KEY + b"\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="0644"):
        key_in(path)
    path.chmod(0o600)
    assert key_in(path) == KEY
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="5 bytes"):
        key_in(path)
