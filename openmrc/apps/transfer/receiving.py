"""The receiving end of a transfer: pieces go from the ring into an unnamed file that gets its name once verified.

A file is written as a temporary file in the target folder, opened by folder descriptor without following links, and
without a name where the file system supports that. When size and SHA-256 match, it is linked to its name, which fails
if the name exists, or, with `force`, renamed over the existing file; a symbolic link there is replaced, never followed.
On any failure the temporary file is removed. Transfers are not resumed.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from openmrc.apps.conversation import Conversation, Note, is_from_peer
from openmrc.apps.listening import ESTABLISH_SECONDS, Refusals, next_peer
from openmrc.apps.shares import Meter, PlaneShare
from openmrc.apps.sizes import gbps, size_text
from openmrc.apps.transfer.names import check_names
from openmrc.apps.transfer.transfer import (
    COUNT,
    CREDIT_BYTES,
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
from openmrc.errors import MrcError, PeerError, UsageError
from openmrc.verbs import Connection, Context, Listener, MemoryRegion

MOST_FILES = 100_000


@dataclass(frozen=True)
class Acceptance:
    """Files that a receiver accepts."""

    out: Path
    force: bool = False  # existing files may be replaced
    max_size: int | None = None  # bytes of one transfer


class FileReceiver:
    """Receives the files of one peer."""

    def __init__(self, context: Context, acceptance: Acceptance, options: TransferOptions) -> None:
        self.context = context
        self.acceptance = acceptance
        self.options = options
        self.progress = TransferProgress()
        self.stored: list[FileResult] = []
        self.peer = ""
        self.longest_stall = 0.0  # s
        self.began = self.ended = 0.0  # s, when the wait for the first piece began, and when the last file was stored
        self.planes: list[PlaneShare] = []
        self._meter = Meter(context)
        self._pd = context.alloc_pd()
        self._taken = 0  # pieces
        self._given = 0  # pieces whose slot was returned to the sender
        self._waiting: collections.deque[tuple[int, int]] = collections.deque()  # pieces that arrived: number, bytes

    def meet(self, listener: Listener, wait: float | None, refusals: Refusals) -> None:
        """Wait for a sender; DeadlineError after `wait` seconds, if given. Other peers are rejected."""
        self._ring = memoryview(anonymous_memory(self.options.slot * self.options.slots))
        self._region = self._pd.reg_mr(self._ring)

        def accept() -> Connection:
            return listener.accept(
                regions=[self._region],
                options=self.options.connection,
                note=Note("recv", plan=RingLayout(self.options.slot, self.options.slots)),
                timeout=ESTABLISH_SECONDS,
                remote_planes=self.options.remote,
            )

        try:
            self._connection, _ = next_peer(listener, accept, "send", wait, refusals)
        except BaseException:
            self._region.dereg()
            raise

    def serve(self) -> None:
        """Receive all files of the sender; PeerError or MrcError gives the reason of a failure."""
        with (
            self._region,
            self._connection as connection,
            self._pd.reg_mr(anonymous_memory(CREDIT_BYTES)) as credit,
        ):
            self._converse(connection, credit)

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
            longest_stall_ms=round(self.longest_stall * 1e3, 3),
            files=self.stored,
            planes=self.planes,
            retransmitted_packets=sum(plane.retransmitted for plane in self.planes),
            error=error,
        )

    def _converse(self, connection: Connection, credit: MemoryRegion) -> None:
        self.conversation = Conversation(connection, Announce | Digest, self.options.timeout)
        self.peer = self.conversation.peer
        self._credit = credit
        try:
            connection.qp.post_recv(self.options.slots)
            self._receive(self._welcome())
        except BaseException as error:
            if not is_from_peer(error):
                self.conversation.give_up(str(error) or "interrupted")
            raise
        finally:
            self.ended = time.monotonic()
            self.planes = self._meter.shares([connection.qp])
            connection.qp.destroy()  # before the memory goes

    def _welcome(self) -> list[FileEntry]:
        """Return the announced files, if all can be accepted."""
        entries: list[FileEntry] = []
        more = True
        while more:
            announced = self.conversation.hear(Announce)
            entries += announced.files
            more = announced.more
            if len(entries) > MOST_FILES:
                raise PeerError(f"{self.peer}: announces more than {MOST_FILES} files")
        check_entries(entries, self.acceptance)
        self.progress.total = sum(entry.size for entry in entries)
        self.progress.files = len(entries)
        return entries

    def _receive(self, entries: Sequence[FileEntry]) -> None:
        with TargetFolder(self.acceptance.out, self.acceptance.force) as folder:
            if self.options.faults is not None:
                self.context.impair(self.options.faults)
            self.conversation.tell(Welcome(self.acceptance.out.name))
            self.began = time.monotonic()
            for index, entry in enumerate(entries):
                self._receive_file(folder, index, entry)
        total = sum(file.bytes for file in self.stored)
        self.conversation.tell(Finished(total, self.longest_stall * 1e3))

    def _receive_file(self, folder: TargetFolder, index: int, entry: FileEntry) -> None:
        self.progress.current = entry.name
        digest = hashlib.sha256()
        with folder.temporary(entry.name) as temporary:
            left = entry.size
            while left:
                left -= self._take_piece(temporary, left, digest)
            sent = self.conversation.hear(Digest)
            if sent.index != index:
                raise self.conversation.lost(f"sent the digest of file {sent.index} instead of {index}")
            if sent.sha256 != digest.hexdigest():
                raise PeerError(f"{entry.name}: checksum mismatch: sender {sent.sha256}, receiver {digest.hexdigest()}")
            temporary.keep()
        self.stored.append(FileResult(name=entry.name, bytes=entry.size, sha256=sent.sha256))
        self.progress.files_done = len(self.stored)
        self.conversation.tell(Stored(index, sent.sha256))

    def _take_piece(self, temporary: Temporary, left: int, digest: hashlib._Hash) -> int:
        if not self._waiting:
            self._return_credits()
            self._await_pieces()
        number, length = self._waiting.popleft()
        if number != self._taken % COUNT or not 1 <= length <= min(self.options.slot, left):
            raise self.conversation.lost(
                f"sent piece {number} of {length} bytes, expected {self._taken} of at most {left}"
            )
        start = self._taken % self.options.slots * self.options.slot
        memory = self._ring[start : start + length]
        temporary.write(memory)
        digest.update(memory)
        self._taken += 1
        self.progress.done += length
        if self._taken - self._given >= max(self.options.slots // 4, 1):
            self._return_credits()
        return length

    def _await_pieces(self) -> None:
        connection = self.conversation.connection
        begun = time.monotonic()
        arrived = self.conversation.completions(connection.recv_cq)
        if self._taken:  # the sender opens its file before the first piece
            self.longest_stall = max(self.longest_stall, time.monotonic() - begun)
        self._waiting += [(each.immediate or 0, each.byte_len) for each in arrived]

    def _return_credits(self) -> None:
        """Return credits for the received pieces, and post as many receives."""
        count = self._taken - self._given
        if count == 0:
            return
        connection = self.conversation.connection
        self._given = self._taken
        connection.qp.post_recv(count)
        remote = connection.remote.regions[0]
        connection.qp.post_write(self._credit, remote.addr, remote.r_key, immediate=self._taken % COUNT, signaled=False)


def make_folder(path: Path) -> None:
    """Create the target folder if it does not exist; UsageError if that fails or the folder is not writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out: {path}: cannot be created: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"--out: {path}: permission denied")


def check_entries(entries: Sequence[FileEntry], acceptance: Acceptance) -> None:
    """Refuse unacceptable files before the first byte arrives."""
    check_names([entry.name for entry in entries])
    if any(entry.size < 0 for entry in entries):
        raise PeerError("a file has a negative size")
    total = sum(entry.size for entry in entries)
    if acceptance.max_size is not None and total > acceptance.max_size:
        raise PeerError(f"{size_text(total)} announced, limit {size_text(acceptance.max_size)} (--max-size)")
    for entry in entries:
        path = acceptance.out / entry.name
        if os.path.lexists(path) and not acceptance.force:
            raise PeerError(f"{entry.name}: file exists; --force at the receiver replaces files")
        if path.is_dir() and not path.is_symlink():
            raise PeerError(f"{entry.name}: is a folder at the receiver")
    free = shutil.disk_usage(acceptance.out).free
    if total > free:
        raise PeerError(f"disk full: {size_text(total)} announced, {size_text(free)} free at the receiver")


class TargetFolder:
    """The target folder, held by descriptor so that nobody can replace it meanwhile."""

    def __init__(self, path: Path, force: bool) -> None:
        self.path = path
        self.force = force

    def __enter__(self) -> TargetFolder:
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"--out: {self.path}: {error.strerror}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.descriptor)

    def temporary(self, name: str) -> Temporary:
        """Return a new temporary file for `name`."""
        return Temporary(self, name)


@dataclass
class Temporary:
    """A file before it gets its name; removed unless `keep` is called.

    Where the file system supports it, the file has no name until then, so that even a killed receiver leaves nothing.
    """

    folder: TargetFolder
    name: str
    hidden: str = field(default_factory=lambda: f".mrc-{secrets.token_hex(8)}.part")
    descriptor: int = -1
    is_named: bool = False  # it is called `hidden`

    def __enter__(self) -> Temporary:
        common = os.O_WRONLY | os.O_CLOEXEC
        try:
            try:
                self.descriptor = os.open(".", common | os.O_TMPFILE, 0o666, dir_fd=self.folder.descriptor)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                    raise
                flags = common | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                self.descriptor = os.open(self.hidden, flags, 0o666, dir_fd=self.folder.descriptor)
                self.is_named = True
        except OSError as error:
            raise self._failed(error) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.hidden, dir_fd=self.folder.descriptor)

    def write(self, memory: memoryview) -> None:
        """Append."""
        while len(memory):
            try:
                memory = memory[os.write(self.descriptor, memory) :]
            except OSError as error:
                raise self._failed(error) from None

    def keep(self) -> None:
        """Give the file its name; MrcError if that exists and may not be replaced."""
        at = self.folder.descriptor
        try:
            if self.folder.force:
                if not self.is_named:
                    self._link(self.hidden)
                os.rename(self.hidden, self.name, src_dir_fd=at, dst_dir_fd=at)
            else:
                self._link(self.name)
        except FileExistsError:
            raise MrcError(f"{self.name}: file exists; it was created during the transfer") from None
        except OSError as error:
            raise self._failed(error) from None

    def _link(self, name: str) -> None:
        """Link the file to a name that must be free."""
        at = self.folder.descriptor
        if not self.is_named:
            os.link(f"/proc/self/fd/{self.descriptor}", name, dst_dir_fd=at, follow_symlinks=True)
            return
        try:
            os.link(self.hidden, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            # Without hard links: check first, with a race of microseconds.
            if os.path.lexists(self.folder.path / name):
                raise FileExistsError from None
            os.rename(self.hidden, name, src_dir_fd=at, dst_dir_fd=at)

    def _failed(self, error: OSError) -> MrcError:
        full = "disk full: " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return MrcError(f"{full}{self.folder.path / self.name}: {error.strerror}")
