from pathlib import Path

import pytest

from openmrc.lab import record


def test_commands_of_a_lab_share_a_token_that_only_its_owner_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    token = record.token("one")
    assert len(token) >= 24
    assert record.token("one") == token
    assert record.token("other") != token
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["token"]
    assert (tmp_path / "one" / "token").stat().st_mode & 0o777 == 0o600
