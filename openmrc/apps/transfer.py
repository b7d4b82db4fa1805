"""The messages between `mrc send` and `mrc recv`, and how a file travels.

The receiver registers a ring of slots. The sender announces all files; the receiver checks names,
sizes and room before the first byte and says Welcome, or gives up with the reason. Then each file
goes in pieces of at most one slot, in order, each a write with immediate into the next slot; the
immediate is the piece's number. The receiver takes a slot's content and gives the slot back by a
write with immediate in the other direction, that counts the pieces taken. After a file's last piece
the sender tells its SHA-256; the receiver compares it with that of the bytes it wrote, gives the
file its name, and says Stored.

Nothing but the ring is ever in memory, so a file may be larger than that.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from openmrc.apps.shares import PlaneShare
from openmrc.apps.sizes import size_text
from openmrc.faults import Schedule
from openmrc.verbs import NO_TOKEN, ConnectionOptions

DEFAULT_PORT = 18516  # beside that of `mrc perf`, so that both may run
SLOT = 1 << 20  # bytes; the unit of the goodput mark, a few hundred packets
SLOTS = 32  # 32 MiB in flight, 25 ms at 10 Gb/s
FILES_IN_FLIGHT = 64  # sent, and not yet confirmed
FILES_A_WORD = 1000  # so that an announcement fits the channel's frames
COUNT = 1 << 32  # immediates have 32 bits
CREDIT_BYTES = 8  # payload of a write that gives slots back; the immediate says all

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One file to come."""

    name: str
    size: int


class Announce(msgspec.Struct, tag="announce", forbid_unknown_fields=True):
    """Sender: what will come. `more`: this is not all of it."""

    files: list[Entry]
    more: bool = False


class Welcome(msgspec.Struct, tag="welcome", forbid_unknown_fields=True):
    """Receiver: all of it may come."""

    out: str


class Digest(msgspec.Struct, tag="digest", forbid_unknown_fields=True):
    """Sender: the SHA-256 of what was read from the file, in hexadecimal digits."""

    index: int
    sha256: Sha256


class Stored(msgspec.Struct, tag="stored", forbid_unknown_fields=True):
    """Receiver: the file has its name; what was written has this SHA-256."""

    index: int
    sha256: Sha256


class Finished(msgspec.Struct, tag="finished", forbid_unknown_fields=True):
    """Receiver: all files are stored."""

    bytes: int
    longest_stall_ms: float  # longest wait for the next piece


class Ring(msgspec.Struct, forbid_unknown_fields=True):
    """The plan in the receiver's note: how its ring is cut."""

    slot: int = SLOT
    slots: int = SLOTS


@dataclass
class Progress:
    """How far a transfer is; the transfer writes it, whoever shows it reads it."""

    total: int = 0  # bytes of all files
    done: int = 0  # bytes that the receiver has taken
    files: int = 0
    files_done: int = 0
    current: str = ""  # name of the file that is moving


class FileResult(msgspec.Struct, kw_only=True):
    """One file that has arrived."""

    name: str
    bytes: int
    sha256: str


class TransferResult(msgspec.Struct, kw_only=True):
    """What `mrc send --json` and `mrc recv --json` print."""

    ok: bool
    peer: str = ""
    bytes: int = 0  # of the files that are stored
    seconds: float = 0.0
    gbps: float = 0.0  # Gb/s of file content
    longest_stall_ms: float = 0.0  # longest wait of the receiver for the next piece
    files: list[FileResult] = msgspec.field(default_factory=list)  # those that are stored
    retransmitted_packets: int = 0  # of this side
    planes: list[PlaneShare] = msgspec.field(default_factory=list)
    error: str | None = None


@dataclass(frozen=True)
class TransferOptions:
    """What both sides may choose."""

    port: int = DEFAULT_PORT
    timeout: float = 30.0  # s without progress
    slot: int = SLOT
    slots: int = SLOTS
    remote: tuple[str, ...] = ()  # addresses of the peer's planes; empty: those it names
    token: str = NO_TOKEN  # the receiver's
    faults: Schedule | None = None  # of what arrives here; its times count from the first byte
    connection: ConnectionOptions = field(default_factory=lambda: ConnectionOptions(max_recv_wr=256))


def anonymous_memory(size: int) -> mmap.mmap:
    """Return zeroed, page-aligned memory that is resident only where it was touched."""
    return mmap.mmap(-1, size)


def summary(result: TransferResult) -> str:
    """Return what a person wants to know of a transfer that went well, in one line."""
    files = f"{len(result.files)} file{'s' if len(result.files) != 1 else ''}"
    return (
        f"{files}, {size_text(result.bytes)} in {result.seconds:.2f} s, {result.gbps:.2f} Gb/s, "
        f"SHA-256 verified, longest stall {result.longest_stall_ms:.1f} ms"
    )
