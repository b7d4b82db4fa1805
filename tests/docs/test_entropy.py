import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.cli.main import app
from openmrc.profiles.profile_states import ALL_RULES, ProfileRules, mermaid

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "entropy.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("rules", ALL_RULES, ids=lambda rules: rules.name)
def test_diagrams_on_the_page_are_drawn_from_the_tables(rules: ProfileRules) -> None:
    assert mermaid(rules) + "\n" in blocks("mermaid")


def test_the_page_has_no_other_diagrams() -> None:
    assert len(blocks("mermaid")) == len(ALL_RULES)


def test_the_profile_on_the_page_is_the_file_it_names() -> None:
    assert blocks("yaml") == [(ROOT / "scenarios/ev/stev_interleaved.yaml").read_text(encoding="utf-8")]


def test_commands_on_the_page_print_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    consoles = blocks("console")
    assert len(consoles) == 2
    for console in consoles:
        command, _, shown = console.partition("\n")
        assert command.startswith("$ mrc ")
        assert CliRunner().invoke(app, shlex.split(command)[2:]).stdout == shown
