"""TLS between agents and controllers: version 1.3, certificates of both sides, and who a certificate makes somebody.

One authority for a fabric signs them all. An agent's certificate has the host's name in the fabric as its only DNS name
and may be used by clients alone; a controller's has the name `controller` and may be used by servers alone. OpenSSL
checks signature, dates and that use, so that a host's key, stolen, makes nobody a controller.
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import ConfigError, PeerError

CONTROLLER = "controller"
AUTHORITY, REVOKED = "ca.pem", "revoked.pem"
LOOK_S = 1.0  # between two looks for new files
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

    A controller can say little to an agent whose certificate it does not accept, so the agent asks itself first: TLS
    in memory, with itself as the server that verifies the client.
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


if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_DAYS = 3650
_SKEW = datetime.timedelta(hours=1)  # clocks of hosts that are slow must accept it, too


def make_certificates(folder: Path, fabric: str, names: Sequence[str], days: int) -> list[str]:
    """Write certificates for these names, and the authority unless it is there; return the files. ConfigError."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ConfigError("certificates need the cryptography package: pip install '.[agents]'") from error
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / AUTHORITY).exists():
        _write_authority(folder, fabric)
    written = []
    for name in names:
        _write_signed(folder, name, days)
        written += [f"{name}.pem", f"{name}.key"]
    return written


def _version(path: Path) -> tuple[int, int]:
    """Return what changes when a file is replaced; zeros if it is not there, as while it is."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def revoke(folder: Path, names: Sequence[str]) -> int:
    """Add the certificates of these names to the authority's list of revoked ones; return its length. ConfigError."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    authority, signer = _authority(folder)
    path, now = folder / REVOKED, datetime.datetime.now(datetime.UTC)
    known = {each.serial_number: each for each in x509.load_pem_x509_crl(path.read_bytes())} if path.exists() else {}
    for name in names:
        try:
            serial = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes()).serial_number
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder / name}.pem: the certificate to revoke: {error}") from error
        known[serial] = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
    made = x509.CertificateRevocationListBuilder().issuer_name(authority.subject).last_update(now - _SKEW)
    made = made.next_update(now + datetime.timedelta(days=AUTHORITY_DAYS))
    for each in known.values():
        made = made.add_revoked_certificate(each)
    part = folder / f"{REVOKED}.part"
    part.write_bytes(made.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM))
    part.replace(path)
    return len(known)


def _write_authority(folder: Path, fabric: str) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key, name = _new_key(), _named(f"{fabric} agents")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates and CRLs
    made = (
        _begun(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder, "ca", made, key)


def _write_signed(folder: Path, name: str, days: int) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority, signer = _authority(folder)
    key = _new_key()
    use = ExtendedKeyUsageOID.SERVER_AUTH if name == CONTROLLER else ExtendedKeyUsageOID.CLIENT_AUTH
    made = (
        _begun(_named(name), authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write(folder, name, made, key)


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: the authority's ca.pem and ca.key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / 'ca.key'}: not a key of an elliptic curve")
    return certificate, key


def _new_key() -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _named(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / f"{name}.key").unlink(missing_ok=True)
    descriptor = os.open(folder / f"{name}.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
