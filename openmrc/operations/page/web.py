"""The page's server: server-sent events out, a few requests in, all of them checked.

Reading needs no token: who can connect may look. Whatever changes state needs the token that `mrc view` prints, in a
header that no other site's page can set without being asked (CORS), from a page of this origin. Where there are users
(`page.users`), looking needs the token of one, which `/enter` puts into a cookie, and acting that of one who may; what
they do, and what they are refused, is audited. The `Host` header must
name the address that is served, so that a name that an attacker controls (DNS rebinding) leads nowhere.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from openmrc.errors import MrcError
from openmrc.operations.page.page_connections import MOST_CONNECTIONS, PageConnection
from openmrc.operations.page.pictures import PageAction, PageSource, PairChoice
from openmrc.operations.page.recording import PageRecording, page_text
from openmrc.operations.page.users import Audit, PageUser, UserRole, user_of

T = TypeVar("T")
MOST_VIEWERS = 64  # streams at a time
MOST_OF_ADDRESS = 16  # of them, from one address; then its oldest makes way for a new one
COOKIE = "mrc-view"
MOST_BODY = 4096  # bytes of a request
BEAT_SECONDS = 10.0  # between two signs of life of a stream
CLOSE_SECONDS = 2.0  # a frame takes less, unless the engine is compiled for it: Ctrl-C does not wait for that
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PageServer:
    """The application and the thread that makes frames."""

    def __init__(
        self, source: PageSource, hosts: frozenset[str], pace: float = 0.1, users: Sequence[PageUser] = (),
        audit: Audit = lambda who, does, what, outcome: None,
    ) -> None:  # fmt: skip
        """`hosts` are the values of the Host header that are served; `pace` is the least time between frames (s)."""
        self.token = secrets.token_urlsafe(18)
        self._users, self._audit = users, audit
        self.recording = PageRecording(source.picture())
        self._source = source
        self._hosts = hosts
        self._pace = pace
        self._stop = threading.Event()
        self._viewers: dict[anyio.CancelScope, str] = {}  # streams with their addresses, the oldest first
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._make_frames, name="openmrc view", daemon=True)

    def start(self, when_broken: Callable[[], object] = lambda: None) -> None:
        """Begin to make frames; `when_broken` is called if that fails, and `check` then raises why."""
        self._when_broken = when_broken
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the making of frames, if something did."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop making frames."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        self._source.close()

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/picture", self._picture),
                Route("/events", self._events),
                Route("/frames", self._frames),
                Route("/cell/{number:int}", self._cell),
                Route("/recording.html", self._recorded),
                Route("/act", self._act, methods=["POST"]),
                Route("/choose", self._choose, methods=["POST"]),
                Route("/enter", self._enter, methods=["POST"]),
            ]
        )

    def _make_frames(self) -> None:
        try:
            while not self._stop.wait(self._pace):
                frame = self._source.frame()
                self.recording.add(frame)
                if frame.finished:
                    self._stop.wait()  # what remains is to be looked at; an action begins no new run
        except Exception as error:  # without it the page would stand still and nobody would know why
            self._failure = error
            self._when_broken()

    def _is_known(self, request: Request) -> bool:
        return request.headers.get("host", "") in self._hosts

    async def _page(self, request: Request) -> Response:
        return self._answer(request, lambda: HTMLResponse(page_text(), headers=_HEADERS), is_data=False)

    async def _picture(self, request: Request) -> Response:
        user = user_of(self._users, request.cookies.get(COOKIE, ""))
        role = "" if user is None else user.role
        return self._answer(request, lambda: _json(msgspec.json.encode(self.recording.picture), role))

    async def _frames(self, request: Request) -> Response:
        return self._answer(request, lambda: _json(b"[" + b",".join(self.recording.frames()) + b"]"))

    async def _recorded(self, request: Request) -> Response:
        name = {"Content-Disposition": 'attachment; filename="mrc-view.html"'}
        return self._answer(request, lambda: HTMLResponse(self.recording.page(), headers={**_HEADERS, **name}))

    async def _cell(self, request: Request) -> Response:
        number = int(request.path_params["number"])
        return self._answer(request, lambda: _json(msgspec.json.encode(self._source.cell(number))))

    def _answer(self, request: Request, make: Callable[[], Response], is_data: bool = True) -> Response:
        if not self._is_known(request):
            return _refused(421, "this server does not answer for that name")
        if is_data and self._users and user_of(self._users, request.cookies.get(COOKIE, "")) is None:
            return _refused(401, "open the address with your token behind #")
        try:
            return make()
        except MrcError as error:
            return _refused(400, str(error))

    async def _enter(self, request: Request) -> Response:
        """Put a user's token into a cookie that no script reads and no other site sends."""
        token = request.headers.get("x-mrc-token", "")
        if not self._is_known(request) or user_of(self._users, token) is None:
            return _refused(403, "the token is no user's")
        answer = JSONResponse({"done": "enter"}, headers=_HEADERS)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    async def _events(self, request: Request) -> Response:
        def stream() -> Response:
            address = request.client.host if request.client else ""
            self._make_way(address)
            return _EventStream(self._viewers, address, self._stream())

        return self._answer(request, stream)

    def _make_way(self, address: str) -> None:
        """End the oldest stream of an address that has its share, or of the one with most: it may be read by nobody."""
        counts = Counter(self._viewers.values())
        if counts[address] < MOST_OF_ADDRESS and len(self._viewers) < MOST_VIEWERS:
            return
        crowded = address if counts[address] >= MOST_OF_ADDRESS else counts.most_common(1)[0][0]
        oldest = next(scope for scope, of in self._viewers.items() if of == crowded)
        del self._viewers[oldest]
        oldest.cancel()

    async def _stream(self) -> AsyncIterator[bytes]:
        number = 0
        while not self._stop.is_set() or number < self.recording.number:
            found = await anyio.to_thread.run_sync(self.recording.wait, number, BEAT_SECONDS, abandon_on_cancel=True)
            text, newest = found
            yield b"data: " + text + b"\n\n" if newest > number else b": still here\n\n"
            number = newest

    async def _act(self, request: Request) -> Response:
        return await self._change(request, PageAction, self._source.act)

    async def _choose(self, request: Request) -> Response:
        def choose(wanted: PairChoice) -> str:
            self._source.choose(wanted.pair)
            return wanted.pair

        return await self._change(request, PairChoice, choose)

    async def _change(self, request: Request, kind: type[T], do: Callable[[T], str]) -> Response:
        if not self._is_known(request):
            return _refused(421, "this server does not answer for that name")
        origin = request.headers.get("origin", "")
        if origin.partition("://")[2] not in self._hosts:
            return _refused(403, "only the page itself may change anything")
        who, why_not = self._actor(request.headers.get("x-mrc-token", ""))
        body = await _body(request)
        if body is None:
            return _refused(413, f"at most {MOST_BODY} bytes")
        does, what = request.url.path[1:], body.decode(errors="replace")
        if why_not:
            if who:  # a stranger may not fill the log
                self._audit(who, does, what, f"refused: {why_not}")
            return _refused(403, why_not)
        try:
            wanted = msgspec.json.decode(body, type=kind)
            said = await anyio.to_thread.run_sync(do, wanted)
        except (MrcError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._audit(who, does, what, str(error))
            return _refused(400, str(error))
        self._audit(who, does, what, "done")
        return JSONResponse({"done": said}, headers=_HEADERS)

    def _actor(self, token: str) -> tuple[str, str]:
        """Return the user with this token, and why they may not act; nothing if they may."""
        if not self._users:
            is_right = hmac.compare_digest(token.encode(), self.token.encode())
            if is_right:
                return "page", ""
            return "", "the token is missing or wrong: open the address that mrc view printed"
        user = user_of(self._users, token)
        if user is None:
            return "", "the token is no user's"
        return user.name, "" if user.role == UserRole.ACT else f"{user.name} may look, not act"


class _EventStream(StreamingResponse):
    """A stream of frames that can be ended while its client reads nothing."""

    def __init__(self, viewers: dict[anyio.CancelScope, str], address: str, frames: AsyncIterator[bytes]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=_HEADERS)
        self._viewers, self._scope = viewers, anyio.CancelScope()
        viewers[self._scope] = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._scope:
                await super().__call__(scope, receive, send)
                return
        finally:
            self._viewers.pop(self._scope, None)
        with anyio.move_on_after(CLOSE_SECONDS):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(request: Request) -> bytes | None:
    """Return a request's body; None if it is too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            return None
    return body


def _json(text: bytes, role: str = "") -> Response:
    return Response(text, media_type="application/json", headers={**_HEADERS, **({"X-MRC-Role": role} if role else {})})


def _refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status_code=status, headers=_HEADERS)


def hosts_for(address: str, port: int) -> frozenset[str]:
    """Return the Host headers that belong to an address; a wildcard serves the names of this machine too."""
    names = {f"[{address}]" if ":" in address else address}
    if address in ("127.0.0.1", "::1", "0.0.0.0", "::"):
        names |= {"localhost", "127.0.0.1", "[::1]"}
    if address in ("0.0.0.0", "::"):
        names |= {socket.gethostname(), socket.getfqdn()}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set()))


def server_of(page: PageServer) -> uvicorn.Server:
    """Return the server of a page, with its limits."""
    config = uvicorn.Config(
        page.application(), log_level="warning", access_log=False, timeout_keep_alive=5,
        limit_concurrency=MOST_CONNECTIONS, http=PageConnection, ws="none",
        server_header=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    return uvicorn.Server(config)


def serve(page: PageServer, sock: Any) -> None:
    """Serve until interrupted, or until no frame can be made: then raise why."""
    server = server_of(page)
    page.start(lambda: setattr(server, "should_exit", True))
    try:
        server.run(sockets=[sock])
    finally:
        page.close()
    page.check()
