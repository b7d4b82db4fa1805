"""TLS between agents and controllers: version 1.3, certificates of both sides, and who a certificate makes somebody.

One authority for a fabric signs them all. An agent's certificate has the host's name in the fabric as its only DNS name
and may be used by clients alone; a controller's has the name `controller` and may be used by servers alone. OpenSSL
checks signature, dates and that use, so that a host's key, stolen, makes nobody a controller.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openmrc.errors import ConfigError, PeerError

CONTROLLER = "controller"
AUTHORITY = "ca.pem"


def controller_tls(folder: Path) -> ssl.SSLContext:
    """Return the context of a controller, from `ca.pem`, `controller.pem` and `controller.key`; ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # no resumption: every connection shows its certificate
    return _loaded(context, folder, CONTROLLER)


def agent_tls(folder: Path, host: str) -> ssl.SSLContext:
    """Return the context of a host's agent, from `ca.pem`, `HOST.pem` and `HOST.key`; ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the certificate, and the name in it
    return _loaded(context, folder, host)


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
