"""The authority of a fabric's agents: certificates for hosts and controllers, and the list of revoked ones.

Agents and controllers need none of this, nor the cryptography package (the extra `agents`): see `certificates`.
"""

import datetime
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from openmrc.errors import ConfigError
from openmrc.operations.fleets.agents.certificates import AUTHORITY, CONTROLLER, REVOKED

AUTHORITY_DAYS = 3650
_SKEW = datetime.timedelta(hours=1)  # clocks of hosts that are slow must accept it, too


def make_certificates(folder: Path, fabric: str, names: Sequence[str], days: int) -> list[str]:
    """Write certificates for these names, and the authority unless it is there; return the files. ConfigError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / AUTHORITY).exists():
        _write_authority(folder, fabric)
    written = []
    for name in names:
        _write_signed(folder, name, days)
        written += [f"{name}.pem", f"{name}.key"]
    return written


def revoke(folder: Path, names: Sequence[str]) -> int:
    """Add the certificates of these names to the authority's list of revoked ones; return its length. ConfigError."""
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
    key, name = ec.generate_private_key(ec.SECP256R1()), _named(f"{fabric} agents")
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
    authority, signer = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
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
    try:
        certificate = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: the authority's ca.pem and ca.key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / 'ca.key'}: not a key of an elliptic curve")
    return certificate, key


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
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
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / f"{name}.key").unlink(missing_ok=True)
    descriptor = os.open(folder / f"{name}.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
