"""The page of commands speaks of all commands, and of no option that does not exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from openmrc.programs.main import COMMANDS, app

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
GROUP: Any = typer.main.get_command(app)
NAMES = [name for section in COMMANDS.values() for name in section]


def options_of(command: Any) -> set[str]:
    """Return every option of a command and of those below it."""
    found = {word for parameter in command.params for word in parameter.opts + parameter.secondary_opts}
    for below in getattr(command, "commands", {}).values():
        found |= options_of(below)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_on_the_page(name: str) -> None:
    assert f"mrc {name}" in PAGE


def test_every_option_on_the_page_exists() -> None:
    known = options_of(GROUP) | {"--help"}
    for name in NAMES:
        known |= options_of(GROUP.get_command(None, name))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z_-]+", PAGE))
    assert len(named) > 20
    assert named <= known
