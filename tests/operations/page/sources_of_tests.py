"""A source without a network behind it, and a served page."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openmrc.errors import ConfigError
from openmrc.operations.page.pictures import (
    CellGrid,
    EvCell,
    Frame,
    LinkDetail,
    LogLine,
    PageAction,
    PageSource,
    PairLine,
    Picture,
)
from openmrc.operations.page.web import PageServer, hosts_for, server_of


class CountingSource:
    """One plane of four links; frames are numbered, actions are kept."""

    def __init__(self) -> None:
        self.acted: list[PageAction] = []
        self.health = [0, 0, 0, 0]
        self.pair = "h0 > h1"
        self.count = 0

    def picture(self) -> Picture:
        grid = CellGrid(
            name="T0 to T1",
            plane=0,
            rows=2,
            columns=2,
            first_cell=0,
            links_per_cell=1,
            links=4,
        )
        actions = ["break", "repair"]
        return Picture(
            title="<b>test", kind="simulation", planes=1, grids=[grid], plane_names=["plane 0"], actions=actions
        )

    def frame(self) -> Frame:
        self.count += 1
        return Frame(
            number=self.count,
            at=float(self.count),
            goodput=[10.0],
            load=[10, 20, 30, 40],
            health=list(self.health),
            pair=self.pair,
            evs=[EvCell(plane=0, ev=1, state="GOOD"), EvCell(plane=0, ev=2, state="DENIED")],
            pairs=[
                PairLine(name=name, state="RTS", gbps=1.0) for name in ("h0 > h1", "</script><script>alert(1)</script>")
            ],
            events=[LogLine(at=float(self.count), kind="fault", text=f"event {self.count}")],
        )

    def cell(self, number: int) -> list[LinkDetail]:
        if number > 3:
            raise ConfigError(f"cell: {number} is not in 0..3")
        ends = ["p0-t0-00", "p0-t1-00"]
        return [LinkDetail(name="<>".join(ends), ends=ends, health="up", lost=0, addresses=["fd00::1"])]

    def act(self, action: PageAction) -> str:
        if action.verb not in ("break", "repair"):
            raise ConfigError(f"verb: {action.verb!r}")
        self.acted.append(action)
        self.health = [3 if action.verb == "break" else 0, 0, 0, 0]
        return f"{action.target} done"

    def choose(self, pair: str) -> None:
        self.pair = pair

    def close(self) -> None:
        pass


@contextmanager
def served(source: PageSource, pace: float = 0.02, **more: Any) -> Iterator[tuple[PageServer, str]]:
    """Yield a page's server and its address."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(64)
        port = sock.getsockname()[1]
        page = PageServer(source, hosts_for("127.0.0.1", port), pace, **more)
        server = server_of(page)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        page.start()
        thread.start()
        try:
            yield page, f"http://127.0.0.1:{port}"
        finally:
            page.close()
            server.should_exit = True
            thread.join(10)


def ask(url: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any, dict[str, str]]:
    """Return status, document or text, and headers; with a body it is a POST."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return _read(answer.status, answer)
    except urllib.error.HTTPError as error:
        return _read(error.code, error)


def _read(status: int, answer: Any) -> tuple[int, Any, dict[str, str]]:
    text = answer.read().decode()
    is_json = answer.headers["Content-Type"].startswith("application/json")
    return status, json.loads(text) if is_json else text, dict(answer.headers)
