"""Where controller sockets are: PID-NUMBER.sock for each endpoint, in a folder that only its user can enter.

`$XDG_RUNTIME_DIR/openmrc`, else `openmrc-ctl-UID` below the temporary directory, or what `MRC_CTL` names.
"""

import errno
import itertools
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from openmrc.errors import ConfigError

VARIABLE = "MRC_CTL"
ENDING = ".sock"
BACKLOG = 128  # connections that wait to be accepted
MOST_PATH = 107  # bytes of a UNIX socket's path
_ON, _OFF = ("on", "1", "yes"), ("", "off", "0", "no")
_numbers = itertools.count()


def wanted(asked: str | None) -> str:
    """Return "on", "off" or a folder: what was asked for or, if nothing was, what the environment says."""
    text = os.environ.get(VARIABLE, "") if asked is None else asked
    if text.lower() in _OFF:
        return "off"
    return "on" if text.lower() in _ON else text


def folder_of(asked: str | None = None) -> Path:
    """Return the folder of the sockets; it need not exist."""
    choice = wanted(asked)
    if choice not in ("on", "off"):
        return Path(choice).absolute()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and _is_ours(Path(runtime)):
        return Path(runtime) / "openmrc"
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # no folder can be written: there is nothing to list, and making one says why not
        temporary = "/tmp"
    return Path(temporary) / f"openmrc-ctl-{os.geteuid()}"


def made_private(folder: Path) -> Path:
    """Create the folder if need be; ConfigError unless it is a folder of this user that no other can enter."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{VARIABLE}: {folder}: {error.strerror}") from error
    check_private(folder)
    return folder


def check_private(folder: Path) -> None:
    """Raise ConfigError for a folder of another user, or one that others can enter: names in it would prove nothing."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{VARIABLE}: {folder} is not a folder")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"{VARIABLE}: {folder} belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise ConfigError(f"{VARIABLE}: {folder} has mode {found.st_mode & 0o777:04o}; controller sockets need 0700")


def listening(folder: Path) -> tuple[socket.socket, Path]:
    """Return a socket that listens in the folder, and its path; ConfigError says why there is none."""
    path = made_private(folder) / f"{os.getpid()}-{next(_numbers)}{ENDING}"
    if len(os.fsencode(path)) > MOST_PATH:
        raise ConfigError(f"{VARIABLE}: {path}: longer than the {MOST_PATH} bytes that a socket's path may have")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # of an earlier process with our number
        os.fchmod(sock.fileno(), 0o600)  # before `bind`, which gives the file this mode
        sock.bind(str(path))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(f"{VARIABLE}: {path}: {error.strerror}") from error
    return sock, path


def endpoints(folder: Path) -> Iterator[Path]:
    """Yield the sockets of a folder whose endpoints live; files of processes that died are removed."""
    if not folder.exists():
        return
    check_private(folder)
    for path in sorted(folder.glob(f"*{ENDING}")):
        if _lives(path):
            yield path


def _lives(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                path.unlink(missing_ok=True)
            return error.errno in (errno.EAGAIN, errno.ETIMEDOUT)
        return True


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
