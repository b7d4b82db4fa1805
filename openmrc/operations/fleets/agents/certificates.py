"""TLS 1.3 between agents and controllers, with certificates of both sides, and what a certificate entitles to.

One authority for a fabric signs them all. An agent's certificate has the host's name in the fabric as its only DNS name
and may be used by clients alone; a controller's has the name `controller` and may be used by servers alone. OpenSSL
checks signature, dates and that use, so that a host's key, stolen, makes nobody a controller.
"""

import logging
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openmrc.errors import ConfigError, PeerError

CONTROLLER = "controller"
AUTHORITY, REVOKED = "ca.pem", "revoked.pem"
LOOK_S = 1.0  # between two checks for new files
log = logging.getLogger(__name__)


class ControllerTls:
    """The context of a controller, from `ca.pem`, `controller.pem`, `controller.key`, and `revoked.pem` if it is there.

    Files may be replaced while the controller runs: they are read again when one has changed.
    """

    def __init__(self, folder: Path) -> None:
        """Read the files; ConfigError."""
        self._folder, self._looked_at = folder, time.monotonic()
        self._read_at = self._changed()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the newest context; files that cannot be used are reported, and change nothing."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            changed = self._changed()
            if changed != self._read_at:
                self._read_at = changed
                try:
                    self._context = self._load()
                except ConfigError as error:
                    log.warning("mrc: new certificates are not used: %s", error)
        return self._context

    def _changed(self) -> list[tuple[int, int]]:
        names = (AUTHORITY, f"{CONTROLLER}.pem", f"{CONTROLLER}.key", REVOKED)
        return [_version(self._folder / name) for name in names]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # no resumption: every connection shows its certificate
        if (self._folder / REVOKED).exists():
            try:
                context.load_verify_locations(self._folder / REVOKED)
            except ssl.SSLError as error:
                raise ConfigError(f"{self._folder / REVOKED}: no list of revoked certificates") from error
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        return _loaded(context, self._folder, CONTROLLER)


def agent_tls(folder: Path, host: str) -> ssl.SSLContext:
    """Return the context of a host's agent, from `ca.pem`, `HOST.pem` and `HOST.key`; ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the certificate, and the name in it
    return _loaded(context, folder, host)


def check_identity(folder: Path, host: str) -> None:
    """Refuse a host's certificate that a controller of the same authority would refuse; ConfigError says why.

    A controller cannot tell an agent why it refuses its certificate, so the agent checks first: TLS in memory, with
    itself as the server that verifies the client.
    """
    judge = _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), folder, host)
    judge.verify_mode, own = ssl.CERT_REQUIRED, agent_tls(folder, host)
    own.check_hostname, own.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = own.wrap_bio(back, there), judge.wrap_bio(there, back, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(f"{folder / host}.pem: {error.verify_message}; `mrc map certs` makes another") from None
        except ssl.SSLError as error:
            raise ConfigError(f"{folder / host}.pem: {error.reason or error}") from None
    if (name := host_of(server.getpeercert())) != host:
        raise ConfigError(f"{folder / host}.pem: the certificate of {name!r}, so nobody takes this agent for {host!r}")


def host_of(certificate: Mapping[str, Any] | None) -> str:
    """Return the host that a verified certificate names; PeerError unless it names exactly one."""
    names = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "DNS"]
    if len(names) != 1:
        raise PeerError(f"certificate with {len(names)} DNS names; an agent's has one, its host's")
    return str(names[0])


def _loaded(context: ssl.SSLContext, folder: Path, name: str) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    for path in (folder / AUTHORITY, certificate, key):
        if not path.is_file():
            raise ConfigError(f"{path}: there is no such file; `mrc map certs` makes it")
    if key.stat().st_mode & 0o077:
        raise ConfigError(f"{key}: mode {key.stat().st_mode & 0o777:04o}; a private key is its owner's alone, 0600")
    try:
        context.load_verify_locations(folder / AUTHORITY)
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise ConfigError(f"{folder}: {name}.pem, {name}.key or {AUTHORITY}: {error.reason or error}") from error
    return context


def _version(path: Path) -> tuple[int, int]:
    """Return what changes when a file is replaced; zeros if it is not there, as while it is."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino
