"""The main command: what it lists, how it completes, what it says of itself."""

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from openmrc.programs.main import COMMANDS, CommandGroup, app

SUBCOMMANDS = {name: found for section in COMMANDS.values() for name, found in section.items()}
NAMES = list(SUBCOMMANDS)


def completed(shell: str, **variables: str) -> str:
    environment = {**os.environ, "_MRC_COMPLETE": f"complete_{shell}", **variables}
    command = [sys.executable, "-c", "import sys; sys.argv = ['mrc']; from openmrc.programs.main import main; main()"]
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60).stdout.decode()


def test_the_help_lists_every_command_under_its_section() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    for title, section in COMMANDS.items():
        assert f"{title}:" in said
        assert all(f"\n  {name} " in said for name in section)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_shows_its_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage" in result.stdout


def test_no_command_is_imported_for_the_main_help() -> None:
    check = (
        "import sys; from openmrc.programs.main import app; from typer.testing import CliRunner;"
        "CliRunner().invoke(app, ['--help']);"
        "heavy = ('numba', 'numpy', 'openmrc.live', 'openmrc.programs.endpoint', 'rich.');"
        "print(*[name for name in sys.modules if name.startswith(heavy)])"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=True).stdout.strip() == b""


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert CliRunner().invoke(app, ["--version"]).stdout.strip() == f"mrc {version('openmrc')}"


def test_an_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["nosuch"]).exit_code == 2


def test_bash_completes_commands_and_options() -> None:
    assert completed("bash", COMP_WORDS="mrc pe", COMP_CWORD="1").split() == ["perf"]
    assert "--planes" in completed("bash", COMP_WORDS="mrc perf --pl", COMP_CWORD="2").split()


def test_the_completion_script_for_bash_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    said = CliRunner().invoke(app, ["--show-completion", "bash"]).stdout
    assert "_MRC_COMPLETE=complete_bash" in said or "_completion()" in said


def test_no_command_is_imported_for_the_help_of_a_group() -> None:
    check = (
        "import sys; from openmrc.programs.main import app; from typer.testing import CliRunner;"
        "assert 'verify' in CliRunner().invoke(app, ['fabric', '--help']).stdout;"
        "print(*[name for name in sys.modules if name.startswith(('numba', 'numpy', 'openmrc.programs.fabrics'))])"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=True).stdout.strip() == b""


@pytest.mark.parametrize("group", [name for name in NAMES if isinstance(SUBCOMMANDS[name], CommandGroup)])
def test_the_help_of_a_group_has_a_line_for_each_command(group: str) -> None:
    said = CliRunner().invoke(app, [group, "--help"]).stdout
    found = SUBCOMMANDS[group]
    assert isinstance(found, CommandGroup)
    for name, command in found.commands.items():
        assert re.search(rf"^  {re.escape(name)} +{re.escape(command.about[:40])}", said, re.MULTILINE), name
