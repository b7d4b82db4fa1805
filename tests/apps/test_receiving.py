import errno
import os
from pathlib import Path

import pytest

from openmrc.apps.transfer.receiving import Acceptance, TargetFolder, Temporary, check_entries, make_folder
from openmrc.apps.transfer.transfer import FileEntry
from openmrc.errors import ConfigError, MrcError, PeerError


def store(folder: Path, name: str, content: bytes, force: bool = False) -> None:
    with TargetFolder(folder, force) as target, target.temporary(name) as temporary:
        temporary.write(memoryview(content))
        temporary.keep()


@pytest.fixture(params=["without a name", "with a hidden name"], autouse=True)
def temporaries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything as on a file system with O_TMPFILE and as on one without."""
    if request.param == "with a hidden name":
        opened = os.open

        def refuse(path: str, flags: int, *others: int, **named: int) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "not here")
            return opened(path, flags, *others, **named)

        monkeypatch.setattr(os, "open", refuse)


def test_a_kept_file_has_its_name_and_a_dropped_one_is_gone(tmp_path: Path) -> None:
    store(tmp_path, "kept", b"content")
    with TargetFolder(tmp_path, force=False) as target, target.temporary("dropped") as temporary:
        temporary.write(memoryview(b"half"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_bytes() == b"content"


def test_a_name_that_was_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with TargetFolder(tmp_path, force=False) as target, target.temporary("a") as temporary:
        (tmp_path / "a").write_text("mine")
        with pytest.raises(MrcError, match="it was created during the transfer"):
            temporary.keep()
    assert (tmp_path / "a").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_force_replaces_a_link_and_never_follows_it(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "a").symlink_to(elsewhere)
    store(folder, "a", b"new", force=True)
    assert not (folder / "a").is_symlink()
    assert (folder / "a").read_bytes() == b"new"
    assert elsewhere.read_text() == "untouched"


def test_a_folder_that_is_swapped_on_the_way_receives_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "other").mkdir()
    with TargetFolder(tmp_path / "out", force=False) as target, target.temporary("a") as temporary:
        (tmp_path / "out").rename(tmp_path / "moved")
        (tmp_path / "out").symlink_to(tmp_path / "other")
        temporary.keep()
    assert (tmp_path / "moved" / "a").exists()
    assert not list((tmp_path / "other").iterdir())


def test_a_disk_that_fills_up_while_writing_says_so(tmp_path: Path) -> None:
    with TargetFolder(tmp_path, force=False) as target:
        full = Temporary(target, "a", descriptor=os.open("/dev/full", os.O_WRONLY))
        with pytest.raises(MrcError, match=r"disk full: .*/a: No space left on device"):
            full.write(memoryview(b"x"))
        os.close(full.descriptor)


def test_more_than_the_disk_has_room_for_is_refused_before_it_comes(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"disk full: 1024.0 TiB announced, .* free at the receiver"):
        check_entries([FileEntry("a", 1 << 50)], Acceptance(tmp_path))


def test_force_takes_existing_files_but_no_folders(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    check_entries([FileEntry("file", 1)], Acceptance(tmp_path, force=True))
    with pytest.raises(PeerError, match="is a folder"):
        check_entries([FileEntry("folder", 1)], Acceptance(tmp_path, force=True))


def test_a_target_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be created: File exists"):
        make_folder(tmp_path / "file")
