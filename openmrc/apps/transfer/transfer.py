"""The messages between `mrc send` and `mrc recv`, and the transfer protocol.

The receiver registers a ring of slots. The sender announces all files; the receiver checks names, sizes and disk space
before the first byte and sends Welcome, or stops with the reason. Each file is then sent in pieces of at most one slot,
in order, each a write with immediate into the next slot; the immediate is the number of the piece. The receiver
consumes a slot and returns it by a write with immediate in the other direction, which counts the consumed pieces.
After a file's last piece the sender sends its SHA-256; the receiver compares it with that of the bytes it wrote, gives
the file its name, and sends Stored.

Only the ring is in memory, so a file may be larger than memory.
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

DEFAULT_PORT = 18516  # next to the port of `mrc perf`, so that both can run
SLOT = 1 << 20  # bytes; the unit of the goodput mark, a few hundred packets
SLOTS = 32  # 32 MiB in flight, 25 ms at 10 Gb/s
FILES_IN_FLIGHT = 64  # files sent but not yet confirmed
FILES_A_WORD = 1000  # so that an announcement fits the channel's frames
COUNT = 1 << 32  # immediates have 32 bits
CREDIT_BYTES = 8  # payload of a write that returns slots; the immediate carries the information

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class FileEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One announced file."""

    name: str
    size: int


class Announce(msgspec.Struct, tag="announce", forbid_unknown_fields=True):
    """Sender: the announced files. `more`: further announcements follow."""

    files: list[FileEntry]
    more: bool = False


class Welcome(msgspec.Struct, tag="welcome", forbid_unknown_fields=True):
    """Receiver: accepts all announced files."""

    out: str


class Digest(msgspec.Struct, tag="digest", forbid_unknown_fields=True):
    """Sender: the SHA-256 of what was read from the file, in hexadecimal digits."""

    index: int
    sha256: Sha256


class Stored(msgspec.Struct, tag="stored", forbid_unknown_fields=True):
    """Receiver: the file has its name; the written bytes have this SHA-256."""

    index: int
    sha256: Sha256


class Finished(msgspec.Struct, tag="finished", forbid_unknown_fields=True):
    """Receiver: all files are stored."""

    bytes: int
    longest_stall_ms: float  # longest wait for the next piece


class RingLayout(msgspec.Struct, forbid_unknown_fields=True):
    """The layout of the receiver's ring, in its note."""

    slot: int = SLOT
    slots: int = SLOTS


@dataclass
class TransferProgress:
    """The progress of a transfer, written by the transfer and read by displays."""

    total: int = 0  # bytes of all files
    done: int = 0  # bytes that the receiver has consumed
    files: int = 0
    files_done: int = 0
    current: str = ""  # name of the current file


class FileResult(msgspec.Struct, kw_only=True):
    """One received file."""

    name: str
    bytes: int
    sha256: str


class TransferResult(msgspec.Struct, kw_only=True):
    """The object that `mrc send --json` and `mrc recv --json` print."""

    ok: bool
    peer: str = ""
    bytes: int = 0  # of the stored files
    seconds: float = 0.0
    gbps: float = 0.0  # Gb/s of file content
    longest_stall_ms: float = 0.0  # longest wait of the receiver for the next piece
    files: list[FileResult] = msgspec.field(default_factory=list)  # stored files
    retransmitted_packets: int = 0  # on this side
    planes: list[PlaneShare] = msgspec.field(default_factory=list)
    error: str | None = None


@dataclass(frozen=True)
class TransferOptions:
    """Options of both sides."""

    port: int = DEFAULT_PORT
    timeout: float = 30.0  # s without progress
    slot: int = SLOT
    slots: int = SLOTS
    remote: tuple[str, ...] = ()  # addresses of the peer's planes; empty: those that it announces
    token: str = NO_TOKEN  # the receiver's
    faults: Schedule | None = None  # for arriving packets; times count from the first byte
    connection: ConnectionOptions = field(default_factory=lambda: ConnectionOptions(max_recv_wr=256))


def anonymous_memory(size: int) -> mmap.mmap:
    """Return zeroed, page-aligned memory; pages become resident when touched."""
    return mmap.mmap(-1, size)


def summary(result: TransferResult) -> str:
    """Return a one-line summary of a successful transfer."""
    files = f"{len(result.files)} file{'s' if len(result.files) != 1 else ''}"
    return (
        f"{files}, {size_text(result.bytes)} in {result.seconds:.2f} s, {result.gbps:.2f} Gb/s, "
        f"SHA-256 verified, longest stall {result.longest_stall_ms:.1f} ms"
    )
