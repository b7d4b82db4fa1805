"""The sending end of a transfer: read files piece by piece into a ring and write the pieces into the peer's ring."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from openmrc.apps.conversation import Conversation, Note, check_note, is_from_peer
from openmrc.apps.shares import Meter, PlaneShare
from openmrc.apps.sizes import gbps
from openmrc.apps.transfer.names import check_names, name_to_send
from openmrc.apps.transfer.transfer import (
    COUNT,
    CREDIT_BYTES,
    FILES_A_WORD,
    FILES_IN_FLIGHT,
    Announce,
    Digest,
    FileEntry,
    FileResult,
    Finished,
    RingLayout,
    Stored,
    TransferOptions,
    TransferProgress,
    TransferResult,
    Welcome,
    anonymous_memory,
)
from openmrc.errors import ConfigError, MrcError, PeerError
from openmrc.verbs import Connection, Context, ExchangeError, MemoryRegion, connect

Message = TypeVar("Message")


@dataclass(frozen=True)
class SourceFile:
    """One file to send, with its state at the start of the transfer."""

    path: Path
    name: str
    size: int
    modified: int  # ns


def sources(paths: Sequence[Path]) -> list[SourceFile]:
    """Check all files before sending; ConfigError names the first that cannot be sent."""
    found = [_source(path) for path in paths]
    try:
        check_names([source.name for source in found])
    except PeerError as error:
        raise ConfigError(f"{error}; files are sent under their base names, which must differ") from None
    return found


def _source(path: Path) -> SourceFile:
    name = name_to_send(path)
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise ConfigError(f"{path}: is not a regular file; pack folders with tar first")
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return SourceFile(path, name, about.st_size, about.st_mtime_ns)


class FileSender:
    """Sends files over one connection."""

    def __init__(self, context: Context, files: Sequence[SourceFile], options: TransferOptions) -> None:
        self.context = context
        self.files = files
        self.options = options
        self.progress = TransferProgress(sum(file.size for file in files), files=len(files))
        self.stored: list[FileResult] = []
        self.finished: Finished | None = None
        self.peer = ""
        self.planes: list[PlaneShare] = []
        self.began = self.ended = 0.0  # s
        self.conversation: Conversation
        self._meter = Meter(context)
        self._pd = context.alloc_pd()
        self._posted = 0  # pieces
        self._read = 0  # pieces whose local slot is free again
        self._taken = 0  # pieces that the receiver has consumed
        self._credited = 0  # bytes of those
        self._lengths: dict[int, int] = {}  # by piece

    def run(
        self,
        host: str,
        begin: Callable[[Connection], Any] | None = None,
        settle: Callable[[Connection], Any] | None = None,
    ) -> None:
        """Send all files and return when the receiver has stored them.

        `begin` is called before the first byte, `settle` after the last one, while the connection is still open.
        """
        with self._pd.reg_mr(anonymous_memory(CREDIT_BYTES)) as credit:
            connection = connect(
                self.context,
                host,
                self.options.port,
                regions=[credit],
                options=self.options.connection,
                note=Note("send"),
                timeout=min(self.options.timeout, 10.0),
                remote_planes=self.options.remote,
                token=self.options.token,
            )
            with connection:
                self._serve(connection, begin, settle)

    def result(self, error: str | None) -> TransferResult:
        """Return the result so far."""
        size = sum(file.bytes for file in self.stored)
        seconds = (self.ended or time.monotonic()) - self.began if self.began else 0.0
        return TransferResult(
            ok=error is None,
            peer=self.peer,
            bytes=size,
            seconds=round(seconds, 6),
            gbps=round(gbps(size, seconds), 4),
            longest_stall_ms=round(self.finished.longest_stall_ms, 3) if self.finished else 0.0,
            files=self.stored,
            planes=self.planes,
            retransmitted_packets=sum(plane.retransmitted for plane in self.planes),
            error=error,
        )

    def _serve(
        self,
        connection: Connection,
        begin: Callable[[Connection], Any] | None,
        settle: Callable[[Connection], Any] | None,
    ) -> None:
        self.conversation = Conversation(connection, Welcome | Stored | Finished, self.options.timeout)
        self.peer = self.conversation.peer
        note = check_note(connection.remote.note, "recv", connection.channel.peer)
        self._cut(connection, msgspec.convert(note.plan, RingLayout))
        self._memory = memoryview(anonymous_memory(self._slot * self._slots))
        with self._pd.reg_mr(self._memory) as ring:
            try:
                connection.qp.post_recv(self._slots)
                self._announce()
                if self.options.faults is not None:
                    self.context.impair(self.options.faults)
                if begin is not None:
                    begin(connection)
                self.began = time.monotonic()
                for index, file in enumerate(self.files):
                    digest = self._send_file(ring, index, file)
                    if settle is not None and index == len(self.files) - 1:
                        settle(connection)
                    self.conversation.tell(Digest(index, digest))
                    self._confirm(index - FILES_IN_FLIGHT)
                self._finish()
            except BaseException as error:
                if not is_from_peer(error):
                    self.conversation.give_up(str(error) or "interrupted")
                raise
            finally:
                self.ended = time.monotonic()
                self.planes = self._meter.shares([connection.qp])
                connection.qp.destroy()  # before its memory goes

    def _cut(self, connection: Connection, ring: RingLayout) -> None:
        remote = connection.remote.regions[0] if connection.remote.regions else None
        if remote is None or not 1 <= ring.slots <= 4096 or ring.slot < 1 or ring.slot * ring.slots > remote.length:
            raise ExchangeError(
                f"{connection.channel.peer}: offers a ring of {ring.slots} x {ring.slot} bytes without matching memory"
            )
        self._remote = remote
        self._slot, self._slots = min(ring.slot, self.options.slot), min(ring.slots, self.options.slots)
        self._remote_slot = ring.slot
        self._remote_slots = ring.slots

    def _announce(self) -> None:
        entries = [FileEntry(file.name, file.size) for file in self.files]
        for first in range(0, len(entries), FILES_A_WORD):
            last = first + FILES_A_WORD
            self.conversation.tell(Announce(entries[first:last], more=last < len(entries)))
        self.conversation.hear(Welcome)

    def _send_file(self, ring: MemoryRegion, index: int, file: SourceFile) -> str:
        """Send the pieces of a file and return its SHA-256."""
        self.progress.current = file.name
        digest = hashlib.sha256()
        with file.path.open("rb", buffering=0) as opened:
            left = file.size
            while left:
                left -= self._send_piece(ring, opened, min(left, self._slot), digest, file)
            self._check_unchanged(opened, file)
        return digest.hexdigest()

    def _send_piece(self, ring: MemoryRegion, opened: BinaryIO, length: int, digest: Any, file: SourceFile) -> int:
        self._wait_for_slot()
        start = self._posted % self._slots * self._slot
        memory = self._memory[start : start + length]
        got = opened.readinto(memory)  # type: ignore[attr-defined]
        if not got:
            raise MrcError(f"{file.path}: truncated while it was sent")
        digest.update(memory[:got])
        connection = self.conversation.connection
        connection.qp.post_write(
            ring[start : start + got],
            self._remote.addr + self._posted % self._remote_slots * self._remote_slot,
            self._remote.r_key,
            wr_id=self._posted,
            immediate=self._posted % COUNT,
        )
        self._lengths[self._posted] = got
        self._posted += 1
        return int(got)

    def _check_unchanged(self, opened: BinaryIO, file: SourceFile) -> None:
        about = os.fstat(opened.fileno())
        if (about.st_size, about.st_mtime_ns) != (file.size, file.modified):
            raise MrcError(f"{file.path}: modified while it was sent")

    def _wait_for_slot(self) -> None:
        """Wait until the local slot is read and the remote one consumed: retransmissions read the local slot again."""
        while self._posted - self._read >= self._slots or self._posted - self._taken >= self._slots:
            self._take_completions()

    def _take_completions(self, or_message: bool = False) -> None:
        """Wait for free local slots and for slots returned by the receiver; with `or_message` also for a message."""
        connection = self.conversation.connection
        cqs = (connection.send_cq, connection.recv_cq)
        if or_message:
            written, credits = self.conversation.wait(cqs, self.options.timeout, or_message=True)
        else:
            written, credits = self.conversation.any_completions(cqs)
        self._read += len(written)
        for credit in credits:
            self._take_credit(credit.immediate or 0)
        if credits:
            connection.qp.post_recv(len(credits))

    def _take_credit(self, count: int) -> None:
        taken = self._taken + (count - self._taken) % COUNT
        if taken > self._posted:
            raise self.conversation.lost(f"took {taken} pieces of {self._posted}")
        for piece in range(self._taken, taken):
            self._credited += self._lengths.pop(piece)
        self._taken = taken
        self.progress.done = max(self.progress.done, self._credited)

    def _confirm(self, until: int) -> None:
        """Read confirmations up to that of the file with this index."""
        while len(self.stored) <= until or (self.conversation.has_message() and len(self.stored) < len(self.files)):
            stored = self._next_message(Stored)
            file = self.files[len(self.stored)]
            if stored.index != len(self.stored):
                raise self.conversation.lost(f"confirmed file {stored.index} before file {len(self.stored)}")
            self.stored.append(FileResult(name=file.name, bytes=file.size, sha256=stored.sha256))
            self.progress.files_done = len(self.stored)
            self.progress.done = max(self.progress.done, sum(file.bytes for file in self.stored))

    def _finish(self) -> None:
        self._confirm(len(self.files) - 1)
        self.finished = self._next_message(Finished)

    def _next_message(self, kind: type[Message]) -> Message:
        """Return the receiver's next message, processing completions meanwhile; moving data counts as progress."""
        before = None
        while not self.conversation.has_message() and before != (self._read, self._taken):
            before = self._read, self._taken
            self._take_completions(or_message=True)
        return self.conversation.hear(kind)
