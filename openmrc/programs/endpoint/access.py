"""Access control of listening commands: the addresses they listen on, and the token that both sides need."""

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openmrc.base.documents import read_text
from openmrc.errors import CallError, ConfigError
from openmrc.live.host.nic_file import BIND_VARIABLE, EVERYWHERE, TOKEN_VARIABLE, from_environment
from openmrc.live.objects.connecting import DEFAULT_PORT
from openmrc.live.objects.handshake import token_bytes
from openmrc.verbs import NO_TOKEN, Listener
from openmrc.wire.entropy import EvPlacement

MOST_BYTES = 4096  # of a token file
# A NIC's address in SRv6 is its carrier as it arrives: its T0 knows it, no other switch does.
_CARRIERS_ONLY = (
    "the planes' addresses lead here from hosts of the same T0 only: listen on another network's address, --bind ADDR"
)


@dataclass(frozen=True)
class AccessPolicy:
    """Access options of a listening command."""

    hosts: tuple[str, ...] | None = None  # None: loopback and the planes' addresses
    token: str | None = None  # None: generate one where other machines can connect; NO_TOKEN: never require one


def hosts_of(bind: str | None) -> tuple[str, ...] | None:
    """Return the addresses of `--bind`, else of the environment; None if neither is set."""
    bind = os.environ.get(BIND_VARIABLE) if bind is None else bind
    if bind is None:
        return None
    hosts = tuple(part.strip() for part in bind.split(","))
    if not all(hosts):
        raise ConfigError(
            f"--bind: {bind!r} has an empty address; '{EVERYWHERE}' selects all addresses of this machine"
        )
    return tuple("" if host == EVERYWHERE else host for host in hosts)


def token_of(token: str | None, token_file: Path | None, no_token: bool) -> str | None:
    """Return the token of the options, else of the environment; NO_TOKEN for `--no-token`, None if none is set."""
    given = [name for name, is_given in (
        ("--token", token is not None), ("--token-file", token_file is not None), ("--no-token", no_token)
    ) if is_given]  # fmt: skip
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} exclude each other; give one")
    if no_token:
        return NO_TOKEN
    if token is not None:
        return _checked(token, "--token")
    if token_file is not None:
        return _checked(read_text(token_file, MOST_BYTES).strip(), f"--token-file: {token_file}")
    inherited = os.environ.get(TOKEN_VARIABLE)
    return _checked(inherited, TOKEN_VARIABLE) if inherited else None


def announcement(listener: Listener, access: AccessPolicy) -> str | None:
    """Return the line that `mrc perf` prints: how to connect, or what is open; None if nothing is to be said."""
    if listener.is_loopback:
        return None
    if not listener.token:
        who = f"anybody who can reach TCP port {listener.port} of this machine"
        return f"--no-token: {who} may have this machine send and receive"
    sockets = listener.context.nic.sockets
    srv6 = sockets.placement == EvPlacement.SRV6
    if access.token is not None and not srv6:
        return None
    planes = [str(address.ip) for address in sockets.addresses]
    port = "" if listener.port == DEFAULT_PORT else f" --port {listener.port}"
    # A token that was generated is printed, one that was given is not.
    token = f" --token {listener.token}" if access.token is None else " (and the same token)"
    peer = f"mrc perf {{}}{port}{token}"
    if not srv6:
        return f"on the other side: {peer.format(_reachable([*listener.hosts, *planes]))}"
    others = [host for host in listener.hosts if host not in planes]
    if all(map(_is_local, others)):
        return f"{_CARRIERS_ONLY}; then, on the other side: {peer.format('ADDR')}"
    return f"on the other side: {peer.format(_reachable(others))}"


def _reachable(hosts: Sequence[str]) -> str:
    """Return an address, or this machine's name, under which other machines reach this one."""
    candidates = [host for host in hosts if host not in ("", "::", "0.0.0.0") and not _is_local(host)]
    return candidates[0] if candidates else _own_name()


def _own_name() -> str:
    """Return the name of the NIC file if it stands for an address, as in a lab, else the machine's."""
    described = from_environment()
    if described is not None:
        with contextlib.suppress(OSError, UnicodeError):
            socket.getaddrinfo(described.name, None)
            return described.name
    return os.uname().nodename


def _is_local(host: str) -> bool:
    return host == "::1" or host.startswith("127.")


def _checked(token: str, source: str) -> str:
    try:
        if not token_bytes(token):
            raise ConfigError(f"{source}: the token is empty; give one, or --no-token to require none")
    except CallError as error:
        raise ConfigError(f"{source}: {error}") from None
    return token
