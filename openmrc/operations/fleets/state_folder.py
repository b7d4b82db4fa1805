"""The persistent state of a controller, in a folder beside the controller sockets: drains, faults, and its epoch.

    drains.json   what operators want out of use, and how far it is; commands and the controller write it, under a lock
    changes.json  what was changed where: drains, and what operators note (`mrc map note`)
    faults.json   parts that are denied; written by the controller, so that the next one goes on with them
    epoch.json    of the last controller here
    orders.json   work orders that go to a URL, with their tickets (`control.order_hook`)
    audit.jsonl   who did what, and what the controller denied: a line is added for each, none is ever changed
    lock          held by the running controller as long as it lives

Files are replaced as a whole and flushed to disk before anything is done about their content: after a crash the next
controller resumes what they say. Without one, every denial has lapsed after a minute, and traffic is as before.
"""

import fcntl
import getpass
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal, TypeVar

import msgspec

from openmrc.ctl.denials import MOST_EPOCH
from openmrc.ctl.folder import made_private
from openmrc.errors import ConfigError

T = TypeVar("T")
MOST_CHANGES = 1000
EPOCH_DRAWN = 20  # bits; 2**43 controllers may follow each other
DrainStage = Literal["draining", "drained", "undraining", "refused"]


class DrainEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A target that is drained, or being drained or undrained."""

    target: str  # as in `mrc drain`
    links: tuple[int, ...]  # both directions, numbers of the topology
    stage: DrainStage = "draining"
    note: str = ""  # why it does not advance


class NotedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of configuration, or work, at some part."""

    at: float  # s since 1970
    target: str  # as in `mrc drain`
    links: tuple[int, ...]  # both directions, numbers of the topology
    what: str


class HeldFault(msgspec.Struct, frozen=True, kw_only=True):
    """A part that is denied as faulty."""

    plane: int
    part: int  # `operations.diagnosis.elements.PlaneParts`
    name: str
    rate: float
    penalty: float  # what was left of it when this was written


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the audit log."""

    at: str  # UTC
    by: str  # user, and program
    does: str  # drain, undrain, note, named, lifted ..
    what: str  # target or part
    outcome: str = ""
    why: str = ""


class StateFolder:
    """The files of one fabric's controller."""

    def __init__(self, sockets: Path) -> None:
        """Create `controller/` below the folder of the sockets; ConfigError if it cannot be private."""
        self.path = made_private(made_private(sockets) / "controller")

    def drains(self) -> list[DrainEntry]:
        """Return the drains in the order of their commands."""
        return self.read("drains.json", list[DrainEntry])

    def change_drains(self, change: Callable[[list[DrainEntry]], list[DrainEntry]]) -> list[DrainEntry]:
        """Replace the drains by a function of them, alone."""
        with (self.path / "drains.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            changed = change(self.drains())
            self.write("drains.json", changed)
        return changed

    def changes(self) -> list[NotedChange]:
        """Return the changes that were noted, the oldest first."""
        return self.read("changes.json", list[NotedChange])

    def note(self, change: NotedChange) -> None:
        """Note a change; of more than `MOST_CHANGES` the oldest are forgotten."""
        with (self.path / "changes.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.write("changes.json", [*self.changes(), change][-MOST_CHANGES:])

    def record(self, does: str, what: str, outcome: str = "", why: str = "", user: str = "") -> None:
        """Add a line to the audit log; it is on disk when this returns. `user`: of the page, else who runs this."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        by = f"{user or _user()} (pid {os.getpid()})"
        line = msgspec.json.encode(AuditEntry(at=at, by=by, does=does, what=what, outcome=outcome, why=why)) + b"\n"
        file = os.open(self.path / "audit.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)  # one write: lines of several processes do not mix
            os.fsync(file)
        finally:
            os.close(file)

    def faults(self) -> list[HeldFault]:
        """Return the denied parts that the last controller knew."""
        return self.read("faults.json", list[HeldFault])

    def write_faults(self, faults: list[HeldFault]) -> None:
        """Remember the denied parts."""
        self.write("faults.json", faults)

    def take_epoch(self, seen: int) -> int:
        """Return an epoch above those that were seen and those of earlier controllers here, and remember it.

        Its low bits are drawn: of two controllers that begin at the same time, one is the newer.
        """
        before = max([seen, *self.read("epoch.json", list[int])])
        epoch = ((before >> EPOCH_DRAWN) + 1 << EPOCH_DRAWN) | secrets.randbits(EPOCH_DRAWN)
        if epoch > MOST_EPOCH:
            raise ConfigError(f"{self.path}: an endpoint has seen epoch {seen}, which leaves none above it")
        self.write("epoch.json", [epoch])
        return epoch

    def has_controller(self) -> bool:
        """Whether a controller is running."""
        with self._lock_file() as file:
            return not _locked(file)

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """Acquire control of the fabric. Raises ConfigError if another controller holds it."""
        with self._lock_file() as file:
            if not _locked(file):
                raise ConfigError(f"{self.path}: another controller is running")
            yield

    def _lock_file(self) -> IO[str]:
        return (self.path / "lock").open("w")

    def read(self, name: str, kind: type[list[T]]) -> list[T]:
        """Return what a file holds, nothing if it is not there; ConfigError if it is damaged."""
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except FileNotFoundError:
            return []
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self.path / name}: damaged: {error}; remove it to begin anew") from error

    def write(self, name: str, what: object) -> None:
        """Replace a file; it is on disk when this returns."""
        part = self.path / f"{name}.part"
        with part.open("wb") as file:
            file.write(msgspec.json.encode(what))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / name)


def _user() -> str:
    """Return the user who runs this, by number where the machine has no name for it, as in some containers."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # KeyError before Python 3.13
        return str(os.getuid())


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def last_change(changes: Sequence[NotedChange], links: Iterable[int]) -> str:
    """Return when and what was changed last at some links; nothing if nobody noted anything."""
    wanted = set(links)
    found = [each for each in changes if wanted.intersection(each.links)]
    if not found:
        return ""
    at = datetime.fromtimestamp(found[-1].at, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC, {found[-1].target}: {found[-1].what}"
