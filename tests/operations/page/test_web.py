"""The page's server: anybody who can connect may look; only the page with the token may change anything."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.request

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import anyio

from openmrc.operations.page import page_connections, web
from openmrc.operations.page.pictures import Frame
from openmrc.operations.page.web import PageServer, hosts_for
from tests.operations.page.sources_of_tests import CountingSource, ask, served


def test_the_page_and_its_frames_are_read_without_a_token_and_nothing_is_loaded_from_elsewhere() -> None:
    with served(CountingSource()) as (page, url):
        status, text, headers = ask(url + "/")
        assert (status, "<!doctype html>" in text) == (200, True)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert page.token not in text
        assert ask(url + "/picture")[1]["title"] == "<b>test"
        page.recording.wait(2, 5.0)
        frames = ask(url + "/frames")[1]
        assert [frame["number"] for frame in frames[:2]] == [1, 2]
        assert ask(url + "/cell/1")[1][0]["addresses"] == ["fd00::1"]
        assert ask(url + "/cell/4")[0] == 400


def test_the_page_names_no_address_outside_itself() -> None:
    from openmrc.operations.page.recording import page_text

    text = page_text()
    assert "http://" not in text
    assert "https://" not in text
    assert "//" not in text.partition("<script>")[0].replace("<!--", "")


def test_frames_are_pushed_as_server_sent_events() -> None:
    with served(CountingSource()) as (_, url), urllib.request.urlopen(url + "/events", timeout=5) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        lines = [stream.readline() for _ in range(4)]
        assert [line[:6] for line in lines] == [b"data: ", b"\n", b"data: ", b"\n"]


def test_changes_need_the_token_and_the_origin() -> None:
    source = CountingSource()
    with served(source) as (page, url):
        body = {"verb": "break", "target": "p0-t0-00<>p0-t1-00"}
        good = {"Origin": url, "X-MRC-Token": page.token}
        assert ask(url + "/act", body)[0] == 403
        assert ask(url + "/act", body, {"Origin": url, "X-MRC-Token": page.token[:-1]})[0] == 403
        assert ask(url + "/act", body, {"Origin": "http://evil.example", "X-MRC-Token": page.token})[0] == 403
        assert ask(url + "/act", body, {"X-MRC-Token": page.token})[0] == 403
        assert source.acted == []
        assert ask(url + "/act", body, good)[1] == {"done": "p0-t0-00<>p0-t1-00 done"}
        assert len(source.acted) == 1
        assert ask(url + "/choose", {"pair": "h1 > h0"}, good)[0] == 200
        assert source.pair == "h1 > h0"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b'{"verb": "break"}', 400),
        (b'{"verb": "explode", "target": "x"}', 400),
        (b'{"verb": "break", "target": "x", "more": 1}', 400),
        (b"[" * 3000, 400),
        (b" " * (web.MOST_BODY + 1), 413),
    ],
)
def test_wrong_and_long_requests_are_refused(body: bytes, status: int) -> None:
    source = CountingSource()
    with served(source) as (page, url):
        code, said, _ = ask(url + "/act", body, {"Origin": url, "X-MRC-Token": page.token})
        assert code == status
        assert said["error"]
    assert source.acted == []


def test_another_name_for_this_address_is_not_served() -> None:
    with served(CountingSource()) as (page, url):
        for path in ("/", "/picture", "/frames", "/events", "/cell/0", "/recording.html"):
            assert ask(url + path, None, {"Host": "rebound.example"})[0] == 421
        headers = {"Host": "rebound.example", "Origin": "http://rebound.example", "X-MRC-Token": page.token}
        assert ask(url + "/act", {"verb": "break", "target": "x"}, headers)[0] == 421


def test_streams_that_nobody_reads_keep_no_new_one_out_and_their_number_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "MOST_OF_ADDRESS", 3)
    with served(CountingSource()) as (page, url), contextlib.ExitStack() as stack:
        for _ in range(3):
            unread(url, stack)
        for _ in range(5):
            stream = stack.enter_context(urllib.request.urlopen(url + "/events", timeout=5))
            assert stream.readline().startswith(b"data: ")
            assert len(page._viewers) <= 3
        assert ask(url + "/picture")[0] == 200


def test_above_the_streams_of_all_addresses_the_most_crowded_address_loses_its_oldest() -> None:
    async def crowded() -> list[int]:
        page = PageServer(CountingSource(), frozenset())
        scopes = [anyio.CancelScope() for _ in range(web.MOST_VIEWERS)]
        for number, scope in enumerate(scopes):
            page._viewers[scope] = "crowd" if 1 <= number < 9 else str(number)
        page._make_way("new")
        return [number for number, scope in enumerate(scopes) if scope.cancel_called]

    assert anyio.run(crowded) == [1]


def unread(url: str, stack: contextlib.ExitStack) -> socket.socket:
    """Open a stream and read none of it."""
    at = int(url.rpartition(":")[2])
    sock = stack.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.connect(("127.0.0.1", at))
    sock.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{at}\r\n\r\n".encode())
    return sock


@pytest.mark.parametrize("begin", [b"", b"GET /picture HTTP/1.1\r\nX-A: "], ids=["idle", "partial"])
def test_connections_that_ask_nothing_keep_nobody_out_and_end(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_connections, "REQUEST_SECONDS", 1.0)
    with served(CountingSource()) as (_, url), contextlib.ExitStack() as stack:
        idle = []
        for _ in range(3 * page_connections.MOST_WAITING):
            idle.append(stack.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))))
            idle[-1].sendall(begin)
            idle[-1].settimeout(10)
        assert ask(url + "/picture")[0] == 200
        assert [closed(sock) for sock in idle] == [True] * len(idle)
        assert page_connections._waiting == {}


def closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_an_answer_that_nobody_reads_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_connections, "READ_SECONDS", 0.5)
    source = CountingSource()
    with served(source, pace=0.001) as (page, url), contextlib.ExitStack() as stack:
        unread(url, stack)
        deadline = time.monotonic() + 60
        while not page._viewers and time.monotonic() < deadline:
            time.sleep(0.01)
        while page._viewers and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not page._viewers


def test_hosts_are_those_of_the_address() -> None:
    assert hosts_for("127.0.0.1", 8000) >= {"127.0.0.1:8000", "localhost:8000"}
    assert hosts_for("192.0.2.1", 80) == {"192.0.2.1:80", "192.0.2.1"}
    assert "[2001:db8::1]:9" in hosts_for("2001:db8::1", 9)


class BreakingSource(CountingSource):
    """A source whose third frame cannot be made."""

    def frame(self) -> Frame:
        if self.count == 2:
            raise OSError("the counters are gone")
        return super().frame()


def test_a_server_whose_source_breaks_ends_and_says_why() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(4)
        page = web.PageServer(BreakingSource(), hosts_for("127.0.0.1", sock.getsockname()[1]), 0.01)
        with pytest.raises(OSError, match="the counters are gone"):
            web.serve(page, sock)
    assert len(page.recording.frames()) == 2
