"""Who may use a controller socket: owners and modes of files."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from openmrc.ctl import folder
from openmrc.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MRC_CTL", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def test_nothing_listens_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.wanted(None) == "off"
    monkeypatch.setenv("MRC_CTL", "on")
    assert folder.wanted(None) == "on"
    assert folder.wanted("off") == "off"  # the attribute wins


def test_the_folder_is_that_of_the_session_or_one_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder.folder_of("on").name == f"openmrc-ctl-{os.geteuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert folder.folder_of("on") == tmp_path / "openmrc"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    assert folder.folder_of("on").name == f"openmrc-ctl-{os.geteuid()}"
    assert folder.folder_of(str(tmp_path / "x")) == tmp_path / "x"


def test_only_its_user_can_enter_the_folder_and_open_the_socket(tmp_path: Path) -> None:
    sock, path = folder.listening(tmp_path / "ctl")
    with sock:
        assert stat.S_IMODE((tmp_path / "ctl").stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(folder.endpoints(tmp_path / "ctl")) == [path]


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ctl").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="mode 0755"):
        folder.listening(tmp_path / "ctl")


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "ctl").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError, match="is not a folder"):
        folder.listening(tmp_path / "ctl")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another user's folder")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ctl").mkdir(mode=0o700)
    os.chown(tmp_path / "ctl", 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to user 65534"):
        folder.listening(tmp_path / "ctl")


def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="107 bytes"):
        folder.listening(tmp_path / ("x" * 100))


def test_the_file_of_a_process_that_died_is_removed_when_endpoints_are_listed(tmp_path: Path) -> None:
    private = folder.made_private(tmp_path / "ctl")
    dead = private / "1-0.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(dead))
    assert list(folder.endpoints(private)) == []
    assert not dead.exists()
