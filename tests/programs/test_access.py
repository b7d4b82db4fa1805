"""Who may connect to a listening `mrc perf`: where it listens, and the token that both sides hold."""

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from openmrc.programs.perf.report import PerfReport
from tests.programs.in_process import run_here
from tests.programs.processes import finish, listening

TOKEN = "a token of both sides"
PLANES = ("--planes", 1)


def asked(port: int, *options: object, **environment: str) -> tuple[int, str]:
    """Measure from this process to that of the server; return the exit code and the error."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        code, said, _ = run_here("perf", "127.0.0.1", "-p", port, *PLANES, "-n", 5, "--json", *options)
    return code, msgspec.json.decode(said, type=PerfReport).mrc.error or ""


def test_only_the_holder_of_the_token_is_let_in(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(TOKEN + "\n")
    with listening("perf", *PLANES, "--token-file", secret) as (server, port):
        assert asked(port) == (1, f"127.0.0.1:{port}: requires a token; give it with --token or --token-file")
        assert asked(port, "--token", "x" * 20) == (1, f"127.0.0.1:{port}: holds a different token")
        assert asked(port, "--token-file", secret) == (0, "")
        code, _, complaints = finish(server)
    assert code == 0
    assert "different token" in complaints
    assert TOKEN not in complaints


@pytest.mark.parametrize("environment", [{"MRC_TOKEN": TOKEN}, {}])
def test_a_token_is_read_from_the_environment_or_given(environment: dict[str, str]) -> None:
    with listening("perf", *PLANES, "--token", TOKEN) as (_, port):
        assert asked(port, *([] if environment else ["--token", TOKEN]), **environment) == (0, "")


def test_a_client_with_a_token_does_not_serve_a_server_without() -> None:
    with listening("perf", *PLANES, "--no-token") as (_, port):
        code, error = asked(port, "--token", TOKEN)
        assert code == 1
        assert "has no token, but this side requires one" in error
        assert asked(port, "--no-token", MRC_TOKEN=TOKEN) == (0, "")


def line_of(server: subprocess.Popen[bytes], word: str) -> str:
    """Return the first line on stderr with this word."""
    assert server.stderr is not None
    for line in server.stderr:
        if word in line.decode():
            return line.decode()
    raise AssertionError(f"it never said {word!r}")


def test_where_other_machines_can_connect_a_fresh_token_is_made_and_told() -> None:
    with listening("perf", *PLANES, "--bind", "all") as (server, port):
        line = line_of(server, "--token")
        found = re.fullmatch(rf"mrc: on the other side: mrc perf \S+ --port {port} --token (\S+)\n", line)
        assert found is not None, line
        assert len(found[1]) >= 24
        assert asked(port)[0] == 1
        assert asked(port, "--token", found[1]) == (0, "")


def test_what_doing_without_a_token_allows_is_said_in_one_line() -> None:
    with listening("perf", *PLANES, "--bind", "0.0.0.0", "--no-token") as (server, port):
        line = line_of(server, "--no-token")
        allowed = "have this machine send and receive"
        assert line == f"mrc: --no-token: anybody who can reach TCP port {port} of this machine may {allowed}\n"


def test_loopback_planes_are_served_on_loopback_only_and_without_a_token() -> None:
    with listening("perf", *PLANES) as (server, port):
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
def test_wrong_options_are_refused_by_name(options: tuple[str, ...], why: str) -> None:
    code, _, complaints = run_here("perf", "--port", 0, *PLANES, *options)
    assert code != 0
    assert why in complaints
