"""Who may look at the page and who may act on it: users with roles, known by tokens of which the file has hashes."""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from openmrc.base.yaml_file import decode
from openmrc.errors import ConfigError

Audit = Callable[[str, str, str, str], None]  # who, does what, to what, outcome
_HEX_DIGITS = 64


class UserRole(StrEnum):
    """What a user may do."""

    LOOK = "look"
    ACT = "act"  # look, too


class PageUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user."""

    name: str
    role: UserRole
    sha256: str  # of the token, in hexadecimal


def users_in(path: Path) -> list[PageUser]:
    """Return the users in a file; ConfigError."""
    users = decode(path, list[PageUser])
    for each in users:
        if len(each.sha256) != _HEX_DIGITS or not set(each.sha256) <= set("0123456789abcdef"):
            raise ConfigError(f"{path}: {each.name}: sha256 is no digest: printf %s TOKEN | sha256sum makes it")
    if len({each.name for each in users}) < len(users) or not users:
        raise ConfigError(f"{path}: no users, or two of one name")
    return users


def user_of(users: Sequence[PageUser], token: str) -> PageUser | None:
    """Return the user with this token."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return next((each for each in users if hmac.compare_digest(each.sha256, digest)), None)
