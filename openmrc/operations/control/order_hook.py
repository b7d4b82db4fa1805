"""Send work orders to a URL: JSON, signed, tried again until it answers, which may give a ticket's number.

    POST URL
    X-MRC-Signature: t=1795859012,v1=HEX        HMAC-SHA-256 of "1795859012." and the body, with the key
    {"id": .., "fabric": .., "ticket": .., "order": {..}}
    --> 2xx, perhaps with {"ticket": "NET-4711"}

An order has one id for as long as its part has one order: who receives it twice finds it again by that. What is not yet
sent is in the state folder, so the next controller goes on. A receiver that says 4xx does not want it: that is final.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import random
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import msgspec

from openmrc.errors import ConfigError
from openmrc.operations.control.controller import ControllerEvent
from openmrc.operations.diagnosis.verdicts import WorkOrder
from openmrc.operations.fleets.state_folder import StateFolder

FILE = "orders.json"
ANSWER_S = 10.0  # for one attempt
FIRST_BACK_OFF_S, MOST_BACK_OFF_S = 1.0, 60.0
MOST_KEPT, MOST_ANSWER = 1000, 1 << 16
LEAST_KEY = 16  # bytes
_LATER = (408, 425, 429)  # of 4xx, those that ask to try again
log = logging.getLogger(__name__)


class PostedOrder(msgspec.Struct, kw_only=True):
    """A work order, and how far it has been sent."""

    id: str
    fabric: str
    order: WorkOrder
    ticket: str = ""
    is_sent: bool = False


class OrderHook:
    """Sends the orders of one controller from a thread of its own; close it."""

    def __init__(self, url: str, key: bytes, fabric: str, state: StateFolder) -> None:
        """Go on with what an earlier controller has not sent; ConfigError."""
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"--orders: {url!r} is no http:// or https:// address")
        self._url, self._key, self._fabric, self._state = url, key, fabric, state
        self._orders = {each.order.verdict.part: each for each in state.read(FILE, list[PostedOrder])}
        self._lock, self._wake, self._over = threading.Lock(), threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="openmrc orders", daemon=True)
        self._thread.start()

    def take(self, event: ControllerEvent) -> ControllerEvent:
        """Send an event's work order, if it has one; return the event with its ticket."""
        if event.order is None:
            return event
        part = event.order.verdict.part
        with self._lock:
            before = self._orders.pop(part, None)
            if before is None or event.order.times == 1:
                text = f"{self._fabric} {part} {time.time_ns()}"
                before = PostedOrder(
                    id=hashlib.sha256(text.encode()).hexdigest()[:24], fabric=self._fabric, order=event.order
                )
            before.order, before.is_sent = event.order, False
            self._orders[part] = before
            for old in list(self._orders)[:-MOST_KEPT]:
                del self._orders[old]
            self._keep()
            ticket = before.ticket
        self._wake.set()
        return msgspec.structs.replace(event, order=msgspec.structs.replace(event.order, ticket=ticket))

    def close(self) -> None:
        """Stop sending; what is left is sent by the next controller."""
        self._over = True
        self._wake.set()
        self._thread.join(ANSWER_S)

    def _keep(self) -> None:
        self._state.write(FILE, list(self._orders.values()))

    def _run(self) -> None:
        limit = FIRST_BACK_OFF_S
        while not self._over:
            with self._lock:
                due = next((each for each in self._orders.values() if not each.is_sent), None)
                sent = None if due is None else due.order
                body = b"" if due is None else msgspec.json.encode(due)
            if due is None:
                self._wake.wait()
                self._wake.clear()
                continue
            ticket = self._post(body)
            if ticket is None:
                self._wake.clear()
                self._wake.wait(random.uniform(0, limit))
                limit = min(MOST_BACK_OFF_S, 2 * limit)
                continue
            limit = FIRST_BACK_OFF_S
            with self._lock:
                due.ticket, due.is_sent = ticket or due.ticket, due.order is sent  # else it has changed meanwhile
                self._keep()
            self._state.record("order sent", due.order.verdict.part, due.ticket)

    def _post(self, body: bytes) -> str | None:
        """Return the ticket, empty if the answer has none; None: try again."""
        headers = {"Content-Type": "application/json", "X-MRC-Signature": signature(self._key, int(time.time()), body)}
        request = urllib.request.Request(self._url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return _ticket(answer.read(MOST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                if 400 <= error.code < 500 and error.code not in _LATER:
                    log.warning("mrc: %s does not take a work order: %s %s", self._url, error.code, error.reason)
                    return ""
            log.info("mrc: %s: %s", self._url, error)
        except (OSError, HTTPException) as error:  # OSError: of which URLError
            log.info("mrc: %s: %s", self._url, error)
        return None


def _ticket(answer: bytes) -> str:
    with contextlib.suppress(ValueError):
        found = json.loads(answer)
        if isinstance(found, dict) and isinstance(found.get("ticket"), str | int):
            return str(found["ticket"])[:100]
    return ""


def signature(key: bytes, at: int, body: bytes) -> str:
    """Return the header that says who sent a body, and when (s since 1970)."""
    return f"t={at},v1={hmac.new(key, b'%d.' % at + body, hashlib.sha256).hexdigest()}"


def key_in(path: Path) -> bytes:
    """Return the key in a file that is its owner's alone; ConfigError."""
    try:
        mode, key = path.stat().st_mode & 0o777, path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if mode & 0o077:
        raise ConfigError(f"{path}: mode {mode:04o}; a key is its owner's alone, 0600")
    if len(key) < LEAST_KEY:
        raise ConfigError(f"{path}: {len(key)} bytes; a key has {LEAST_KEY} or more")
    return key
