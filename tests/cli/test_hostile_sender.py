"""What `mrc recv` does with a sender that does not play by the rules: one process serves all of them."""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from openmrc.apps.conversation import Conversation, GaveUpError, Note
from openmrc.apps.endpoint import EndpointOptions, open_endpoint
from openmrc.apps.planes import EndpointSide, loopback_planes
from openmrc.apps.transfer.transfer import (
    Announce,
    Digest,
    FileEntry,
    Stored,
    TransferResult,
    Welcome,
    anonymous_memory,
)
from openmrc.errors import PeerError
from openmrc.verbs import ConnectionOptions, Context, MemoryRegion, connect
from tests.live import strangers

from .processes import receiving

CONTENT = b"what was sent"
RIGHT = hashlib.sha256(CONTENT).hexdigest()
LIMIT = 1 << 20


class Hostile:
    """A sender that says what it likes."""

    def __init__(self, context: Context, port: int) -> None:
        pd = context.alloc_pd()
        self.memory: MemoryRegion = pd.reg_mr(anonymous_memory(4096))
        self.memory.bytes[: len(CONTENT)] = list(CONTENT)
        self.connection = connect(
            context, "127.0.0.1", port, regions=[self.memory], options=ConnectionOptions(max_recv_wr=256),
            note=Note("send"), timeout=60,
        )  # fmt: skip
        self.conversation = Conversation(self.connection, Welcome | Stored, 60.0)
        self.connection.qp.post_recv(64)

    def announce(self, *entries: FileEntry) -> None:
        self.conversation.tell(Announce(list(entries)))

    def write(self, piece: int, length: int = len(CONTENT)) -> None:
        remote = self.connection.remote.regions[0]
        self.connection.qp.post_write(self.memory[:length], remote.addr, remote.r_key, immediate=piece)

    def refusal(self) -> str:
        """Return why the receiver gave up."""
        while True:
            try:
                self.conversation.hear(object)
            except GaveUpError as error:
                reason = str(error)
                break
        self.close()
        return reason

    def close(self) -> None:
        self.connection.close()
        self.memory.dereg()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("hostile")
    (folder / "taken").write_text("mine")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "dangling").symlink_to(folder / "nowhere")
    return folder


@pytest.fixture(scope="module")
def receiver(out: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with receiving(out, "--planes", 1, "--max-size", LIMIT, "--timeout", 4) as found:
        yield found


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_endpoint(EndpointOptions(tuple(loopback_planes(1, EndpointSide.CLIENT)))) as opened:
        yield opened


@pytest.fixture
def hostile(context: Context, receiver: tuple[subprocess.Popen[bytes], int]) -> Hostile:
    return Hostile(context, receiver[1])


def outcome(receiver: tuple[subprocess.Popen[bytes], int]) -> TransferResult:
    assert receiver[0].stdout is not None
    return msgspec.json.decode(receiver[0].stdout.readline(), type=TransferResult)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (FileEntry("../escape", 13), "contains a path separator"),
        (FileEntry("/tmp/escape", 13), "contains a path separator"),
        (FileEntry("..", 13), "is not a file name"),
        (FileEntry("a\0b", 13), "control character U+0000"),
        (FileEntry("a\x1b[2Jb", 13), "control character U+001B"),
        (FileEntry("taken", 13), "taken: file exists"),
        (FileEntry("link", 13), "link: file exists"),
        (FileEntry("dangling", 13), "dangling: file exists"),
        (FileEntry("huge", LIMIT + 1), "--max-size"),
        (FileEntry("negative", -1), "negative size"),
    ],
)
def test_a_trick_is_refused_before_the_first_byte(
    hostile: Hostile, receiver: tuple[subprocess.Popen[bytes], int], out: Path, entry: FileEntry, reason: str
) -> None:
    before = sorted(out.iterdir())
    hostile.announce(entry)
    assert reason in hostile.refusal()
    result = outcome(receiver)
    assert not result.ok
    assert reason in (result.error or "")
    assert sorted(out.iterdir()) == before
    assert (out / "taken").read_text() == "mine"
    assert not (out.parent / "escape").exists()


def test_content_that_does_not_fit_its_checksum_never_gets_a_name(
    hostile: Hostile, receiver: tuple[subprocess.Popen[bytes], int], out: Path
) -> None:
    hostile.announce(FileEntry("tampered", len(CONTENT)))
    hostile.conversation.hear(Welcome)
    hostile.write(0)
    hostile.conversation.tell(Digest(0, hashlib.sha256(b"what was meant").hexdigest()))
    assert "tampered: checksum mismatch" in hostile.refusal()
    assert "checksum mismatch" in (outcome(receiver).error or "")
    assert not (out / "tampered").exists()


@pytest.mark.parametrize(("piece", "length"), [(1, 13), (0, 14)])
def test_a_piece_out_of_turn_or_too_long_ends_the_transfer(
    hostile: Hostile, receiver: tuple[subprocess.Popen[bytes], int], out: Path, piece: int, length: int
) -> None:
    hostile.announce(FileEntry("odd", len(CONTENT)))
    hostile.conversation.hear(Welcome)
    hostile.write(piece, length)
    assert f"sent piece {piece} of {length} bytes" in hostile.refusal()
    assert not outcome(receiver).ok
    assert not (out / "odd").exists()


STRANGERS: dict[str, Callable[[int], object]] = {
    "resets the connection": strangers.reset,
    "hangs up": strangers.vanish,
    "speaks HTTP": lambda port: strangers.say(port, b"GET / HTTP/1.1\r\n\r\n"),
    "names too few source ports": lambda port: turned_away(port, source_ports=[]),
    "names 3,000 source ports": lambda port: turned_away(port, source_ports=[list(range(1, 3001))]),
    "names a port of 70 bits": lambda port: turned_away(port, source_ports=[[1 << 70]]),
    "offers no memory": lambda port: turned_away(port, regions=[], note=msgspec.to_builtins(Note("send"))),
    "is another program": lambda port: turned_away(port, note={"role": "perf client", "version": 1, "plan": None}),
    "has no note": lambda port: turned_away(port),
    "has another MTU": lambda port: turned_away(port, path_mtu=256),
}


def turned_away(port: int, **changes: object) -> None:
    options = ConnectionOptions(max_recv_wr=256)
    channel = strangers.greet(port, strangers.offer(options, **changes))
    heard = []
    with contextlib.suppress(PeerError):
        while True:
            heard.append(channel.hear(timeout=20))
            if heard[-1] == "ready":
                channel.tell("ready")
    channel.close()


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_is_turned_away_and_counts_as_no_transfer(
    receiver: tuple[subprocess.Popen[bytes], int], stranger: str
) -> None:
    STRANGERS[stranger](receiver[1])
    assert receiver[0].poll() is None


def test_silent_connections_keep_no_sender_waiting(
    context: Context, receiver: tuple[subprocess.Popen[bytes], int]
) -> None:
    with strangers.silent(receiver[1], 100):
        hostile = Hostile(context, receiver[1])
    hostile.announce(FileEntry("..", 13))
    assert "is not a file name" in hostile.refusal()
    assert "is not a file name" in (outcome(receiver).error or "")


def test_a_sender_that_talks_without_end_is_not_kept(
    hostile: Hostile, receiver: tuple[subprocess.Popen[bytes], int]
) -> None:
    hostile.announce(FileEntry("talk", LIMIT))
    hostile.conversation.hear(Welcome)
    before = resident(receiver[0].pid)
    announcement = Announce([FileEntry("x" * 200, 1)] * 1000)
    with contextlib.suppress(PeerError):
        for _ in range(300):
            hostile.conversation.tell(announcement)
    assert resident(receiver[0].pid) - before < 64 << 20
    hostile.close()
    assert not outcome(receiver).ok


def resident(pid: int) -> int:
    """Return the bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_after_all_of_them_a_good_sender_is_served(
    hostile: Hostile, receiver: tuple[subprocess.Popen[bytes], int], out: Path
) -> None:
    hostile.announce(FileEntry("good", len(CONTENT)))
    hostile.conversation.hear(Welcome)
    hostile.write(0)
    hostile.conversation.tell(Digest(0, RIGHT))
    assert hostile.conversation.hear(Stored).sha256 == RIGHT
    hostile.close()
    result = outcome(receiver)
    assert result.ok
    assert (out / "good").read_bytes() == CONTENT
    assert not [path for path in out.iterdir() if path.name.startswith(".mrc-")]
