"""Who may connect to `mrc recv`: where it listens, and the token that both sides hold."""

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from openmrc.apps.transfer.transfer import TransferResult

from .in_process import run_here
from .processes import finish, listening

TOKEN = "a token of both sides"
PLANES = ("--planes", 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"what was sent")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def sent(file: Path, port: int, *options: object, **environment: str) -> tuple[int, str]:
    """Send from this process to that of the receiver; return the exit code and the error."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        code, said, _ = run_here("send", file, "127.0.0.1", "-p", port, *PLANES, "--json", *options)
    return code, msgspec.json.decode(said, type=TransferResult).error or ""


def test_only_the_holder_of_the_token_is_let_in(file: Path, out: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(TOKEN + "\n")
    with listening("recv", "--out", out, "--count", 3, *PLANES, "--token-file", secret, "--force") as (receiver, port):
        assert sent(file, port) == (1, f"127.0.0.1:{port}: requires a token; give it with --token or --token-file")
        code, error = sent(file, port, "--token", "x" * 20)
        assert (code, error) == (1, f"127.0.0.1:{port}: holds a different token")
        assert list(out.iterdir()) == []
        assert sent(file, port, "--token", TOKEN) == (0, "")
        assert sent(file, port, "--token-file", secret) == (0, "")
        assert sent(file, port, MRC_TOKEN=TOKEN) == (0, "")
        code, _, complaints = finish(receiver)
    assert code == 0
    assert "different token" in complaints
    assert (out / "file").read_bytes() == b"what was sent"
    assert TOKEN not in complaints


def test_a_sender_with_a_token_does_not_serve_a_receiver_without(file: Path, out: Path) -> None:
    with listening("recv", "--out", out, *PLANES, "--no-token") as (_, port):
        code, error = sent(file, port, "--token", TOKEN)
        assert code == 1
        assert "has no token, but this side requires one" in error
        assert sent(file, port, "--no-token", MRC_TOKEN=TOKEN) == (0, "")


def line_of(receiver: subprocess.Popen[bytes], word: str) -> str:
    """Return the first line on stderr with this word."""
    assert receiver.stderr is not None
    for line in receiver.stderr:
        if word in line.decode():
            return line.decode()
    raise AssertionError(f"it never said {word!r}")


def test_where_other_machines_can_connect_a_fresh_token_is_made_and_told(file: Path, out: Path) -> None:
    with listening("recv", "--out", out, "--once", *PLANES, "--bind", "all") as (receiver, port):
        line = line_of(receiver, "--token")
        found = re.fullmatch(rf"mrc: on the other side: mrc send FILE \S+ --port {port} --token (\S+)\n", line)
        assert found is not None, line
        assert len(found[1]) >= 24
        assert sent(file, port)[0] == 1
        assert sent(file, port, "--token", found[1]) == (0, "")


def test_what_doing_without_a_token_allows_is_said_in_one_line(out: Path) -> None:
    with listening("recv", "--out", out, *PLANES, "--bind", "0.0.0.0", "--no-token") as (receiver, port):
        line = line_of(receiver, "--no-token")
        assert line == f"mrc: --no-token: anybody who can reach TCP port {port} of this machine may send files\n"


@pytest.mark.parametrize("command", [("recv", "--out", "."), ("perf",)])
def test_loopback_planes_are_served_on_loopback_only_and_without_a_token(command: tuple[str, ...]) -> None:
    with listening(*command, *PLANES) as (server, port):
        assert server.stderr is not None
        names = [
            line.split()[1].split(":")[0]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
        ]
    assert names
    assert all(name.endswith("7F") or name == "0" * 24 + "01000000" for name in names)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--token", "short"), "--token: token: 5 characters, at least 16"),
        (("--token", TOKEN, "--no-token"), "--token and --no-token exclude each other; give one"),
        (("--token-file", "/nonexistent"), "/nonexistent: cannot be read"),
        (("--token-file", "/dev/null"), "the token is empty"),
        (("--bind", "127.0.0.1,"), "--bind"),
        (("--bind", "192.0.2.1"), "cannot listen on 192.0.2.1"),
    ],
)
def test_wrong_options_are_refused_by_name(out: Path, options: tuple[str, ...], why: str) -> None:
    code, _, complaints = run_here("recv", "--out", out, "--once", "--port", 0, *PLANES, *options)
    assert code != 0
    assert why in complaints
