"""What `mrc recv` does with a sender that does not play by the rules: one process serves all of them."""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from openmrc.apps.conversation import Conversation, GaveUpError, Note
from openmrc.apps.endpoint import EndpointOptions, open_endpoint
from openmrc.apps.planes import Side, loopback_planes
from openmrc.apps.transfer import Announce, Digest, Entry, Stored, TransferResult, Welcome, anonymous_memory
from openmrc.verbs import ConnectionOptions, Context, MemoryRegion, connect

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

    def announce(self, *entries: Entry) -> None:
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
    with receiving(out, "--planes", 1, "--max-size", LIMIT) as found:
        yield found


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_endpoint(EndpointOptions(tuple(loopback_planes(1, Side.CLIENT)), movable=True)) as opened:
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
        (Entry("../escape", 13), "holds a path separator"),
        (Entry("/tmp/escape", 13), "holds a path separator"),
        (Entry("..", 13), "is no file name"),
        (Entry("a\0b", 13), "control character U+0000"),
        (Entry("a\x1b[2Jb", 13), "control character U+001B"),
        (Entry("taken", 13), "taken: exists already"),
        (Entry("link", 13), "link: exists already"),
        (Entry("dangling", 13), "dangling: exists already"),
        (Entry("huge", LIMIT + 1), "--max-size"),
        (Entry("negative", -1), "negative size"),
    ],
)
def test_a_trick_is_refused_before_the_first_byte(
    hostile: Hostile, receiver: tuple[subprocess.Popen[bytes], int], out: Path, entry: Entry, reason: str
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
    hostile.announce(Entry("tampered", len(CONTENT)))
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
    hostile.announce(Entry("odd", len(CONTENT)))
    hostile.conversation.hear(Welcome)
    hostile.write(piece, length)
    assert f"sent piece {piece} of {length} bytes" in hostile.refusal()
    assert not outcome(receiver).ok
    assert not (out / "odd").exists()


def test_after_all_of_them_a_good_sender_is_served(
    hostile: Hostile, receiver: tuple[subprocess.Popen[bytes], int], out: Path
) -> None:
    hostile.announce(Entry("good", len(CONTENT)))
    hostile.conversation.hear(Welcome)
    hostile.write(0)
    hostile.conversation.tell(Digest(0, RIGHT))
    assert hostile.conversation.hear(Stored).sha256 == RIGHT
    hostile.close()
    result = outcome(receiver)
    assert result.ok
    assert (out / "good").read_bytes() == CONTENT
    assert not [path for path in out.iterdir() if path.name.startswith(".mrc-")]
