import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.programs.main import app
from spec.profile_table import table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "entropy.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_table_of_profiles_is_that_of_the_code() -> None:
    assert table() in PAGE, "put the output of spec.profile_table.table() into docs/entropy.md"


def test_the_profile_on_the_page_is_the_file_it_names() -> None:
    schema, _, text = (ROOT / "scenarios/ev/stev_interleaved.yaml").read_text(encoding="utf-8").partition("\n")
    assert schema.startswith("# yaml-language-server: ")
    assert blocks("yaml") == [text]


def test_commands_on_the_page_print_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    consoles = blocks("console")
    assert len(consoles) == 2
    for console in consoles:
        command, _, shown = console.partition("\n")
        assert command.startswith("$ mrc ")
        assert CliRunner().invoke(app, shlex.split(command)[2:]).stdout == shown
