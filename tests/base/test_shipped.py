"""Files that ship with the package are found by name, a user's own file of that name first."""

from pathlib import Path

import pytest

from openmrc.base import shipped
from openmrc.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("demo", "demo.yaml"),
        ("gpus-1024", "fabrics/gpus-1024.yaml"),
        ("fabrics/gpus-1024", "fabrics/gpus-1024.yaml"),
        ("scenarios/fabrics/gpus-1024.yaml", "fabrics/gpus-1024.yaml"),
        ("paper/t1-reboot.yaml", "paper/t1-reboot.yaml"),
    ],
)
def test_a_name_finds_a_shipped_file(name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped.find(name) == shipped.SCENARIOS / file


def test_a_file_of_the_user_comes_first_and_a_folder_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lab").mkdir()
    Path("demo").write_text("mine")
    assert shipped.find("demo") == Path("demo")
    assert shipped.find("lab") == shipped.SCENARIOS / "fabrics" / "lab.yaml"


def test_a_mistyped_name_gets_a_suggestion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine-at-work.yaml").touch()
    for typed, meant in (
        ("dmeo", "demo"),
        ("gpu-1024.yaml", "fabrics/gpus-1024"),
        ("mine-atwork", "mine-at-work.yaml"),
    ):
        with pytest.raises(ConfigError, match=rf"{typed}: cannot be read: .*; did you mean {meant}\?"):
            shipped.find(typed)


def test_a_folder_is_called_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    with pytest.raises(ConfigError, match="results: is a folder; expected a file"):
        shipped.find("results")


def test_nothing_outside_the_shipped_folder_is_found() -> None:
    assert shipped.find("../sim/demo.yaml") == Path("../sim/demo.yaml")
    assert shipped.find("/no/such/file") == Path("/no/such/file")


def test_every_shipped_file_is_reached_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(shipped.names()) > 30
    assert all(shipped.find(name).is_file() for name in shipped.names())
