"""One controller of a fabric on several machines: the one that holds a lease in etcd.

    openmrc/FABRIC/controller   its name, under the lease: whoever creates the key is in charge
    openmrc/FABRIC/state        the files of its state folder, put only while the first key is its own

The others wait. The one that takes over begins with the state of its predecessor, so its epoch is greater, and hosts
refuse later orders of the older controller. That one stops when it could not renew for as long as the lease lasts, by
its own clock. Without etcd, a lock on one machine does the same there (`StateFolder.in_charge`).

etcd is asked through its JSON gateway (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/).
"""

import base64
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from openmrc.errors import ConfigError
from openmrc.operations.fleets.state_folder import StateFolder

LEASE_S = 10
RENEW_S = 1.0  # between two renewals, and between two attempts of a controller that waits
ANSWER_S = 2.0
_FILES = ("drains.json", "changes.json", "faults.json", "epoch.json", "orders.json")
log = logging.getLogger(__name__)


class EtcdError(Exception):
    """etcd did not answer, or refused."""


class EtcdLease:
    """The lease of one fabric's controller."""

    def __init__(self, url: str, fabric: str, name: str, state: StateFolder) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"--etcd: {url!r} is no http:// or https:// address")
        self._url, self._name, self._state = url.rstrip("/"), name, state
        self._key, self._state_key = (_text(f"openmrc/{fabric}/{each}") for each in ("controller", "state"))
        self._lease, self._revision = 0, ""
        self._good_until = 0.0
        self._kept: dict[str, str] = {}
        self._over = threading.Event()

    @property
    def is_lost(self) -> bool:
        """Whether another controller may be in charge."""
        return time.monotonic() >= self._good_until

    @contextmanager
    def held(self, wait: Callable[[str], bool]) -> Iterator[None]:
        """Wait for the lease, read the state, renew the lease until the end. Raises ConfigError if `wait` gives up.

        `wait` gets the name of the controller in charge, or an error, and returns whether to go on waiting.
        """
        while said := self._missing():
            if not wait(said):
                raise ConfigError(f"{self._url}: {said}")
            time.sleep(RENEW_S)
        thread = threading.Thread(target=self._renew, name="openmrc lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(2 * ANSWER_S)
            self._give_up()

    def _missing(self) -> str:
        """Try to take the lease; return why not."""
        try:
            return self._take()
        except EtcdError as error:
            return str(error)
        except (LookupError, TypeError, ValueError) as error:  # JSON, but of something else
            return f"not an answer of etcd: {error!r}"

    def _take(self) -> str:
        begun = time.monotonic()
        self._lease = int(self._ask("lease/grant", {"TTL": LEASE_S})["ID"])
        answer = self._ask(
            "kv/txn",
            {
                "compare": [{"key": self._key, "target": "CREATE", "create_revision": "0"}],
                "success": [{"request_put": {"key": self._key, "value": _text(self._name), "lease": str(self._lease)}}],
                "failure": [{"request_range": {"key": self._key}}],
            },
        )
        if not answer.get("succeeded"):
            self._ask("lease/revoke", {"ID": str(self._lease)})
            found = answer["responses"][0]["response_range"].get("kvs", [])
            return f"{base64.b64decode(found[0]['value']).decode()} is in charge" if found else "taken meanwhile"
        self._revision, self._good_until = answer["header"]["revision"], begun + LEASE_S
        found = self._ask("kv/range", {"key": self._state_key}).get("kvs", [])
        self._kept = json.loads(base64.b64decode(found[0]["value"])) if found else {}
        for name in _FILES:
            if name in self._kept:
                self._state.write(name, json.loads(self._kept[name]))
        return ""

    def _renew(self) -> None:
        while not self._over.wait(RENEW_S) and not self.is_lost:
            begun = time.monotonic()
            try:
                self._put_state()
                answer = self._ask("lease/keepalive", {"ID": str(self._lease)})
                if int(answer.get("result", {}).get("TTL", 0)) <= 0:
                    raise EtcdError("the lease has ended")
                self._good_until = begun + LEASE_S
            except (EtcdError, OSError) as error:  # OSError: of the state folder
                log.warning("mrc: %s: %s", self._url, error)

    def _put_state(self) -> None:
        files = {name: (self._state.path / name) for name in _FILES}
        now = {name: path.read_text() for name, path in files.items() if path.exists()}
        if now == self._kept:
            return
        answer = self._ask(
            "kv/txn",
            {
                "compare": [{"key": self._key, "target": "CREATE", "create_revision": self._revision}],
                "success": [{"request_put": {"key": self._state_key, "value": _text(json.dumps(now))}}],
            },
        )
        if not answer.get("succeeded"):
            self._good_until = 0.0
            raise EtcdError("another controller is in charge")
        self._kept = now

    def _give_up(self) -> None:
        """Write the state and revoke the lease, so that the next controller can begin at once."""
        try:
            if not self.is_lost:
                self._put_state()
            self._ask("lease/revoke", {"ID": str(self._lease)})
        except EtcdError as error:
            log.info("mrc: %s: %s", self._url, error)
        self._good_until = 0.0

    def _ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._url}/v3/{what}", json.dumps(body).encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return dict(json.load(answer))
        except (OSError, HTTPException, TypeError, ValueError) as error:  # OSError: of which HTTPError and URLError
            raise EtcdError(str(error)) from error


def _text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
