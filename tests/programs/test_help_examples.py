"""Every command's help ends with two examples; all of them parse, and those that are cheap run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from openmrc.programs.main import COMMANDS, app, examples

GROUP: Any = typer.main.get_command(app)
# These need a peer, root, a device, a recording, or minutes; or they compile the engine.
ONLY_PARSED = re.compile(
    r"(demo|send|recv|perf|collperf|train|decode|conform --virtual|sim (run|sweep|compare|steps)|"
    r"undrain|map (watch|agent|note|feed)|"
    r"fabric diff|fabric cabled|fabric learn|lab|ctl (?!list)|metrics|view|top|warm|doctor|run|native|plan job)\b"
)
EXAMPLES = examples()
LINES = [line for pair in EXAMPLES.values() for line in pair]


def commands_below(command: Any, name: str) -> list[str]:
    below = command.list_commands(None) if hasattr(command, "list_commands") else []
    own = [name] if not below or command.invoke_without_command else []
    inner = [(each, command.get_command(None, each)) for each in below]
    return own + [found for each, one in inner for found in commands_below(one, f"{name} {each}")]


def words_of(line: str) -> list[str]:
    """Return the arguments of a printed command, without its redirection."""
    return shlex.split(line.removeprefix("mrc ").partition(" > ")[0])


def test_every_command_has_two_examples() -> None:
    names = [name for section in COMMANDS.values() for name in section]
    every = [found for name in names for found in commands_below(GROUP.get_command(None, name), name)]
    assert sorted(every) == sorted(EXAMPLES), "two examples of each command belong into openmrc/programs/examples.toml"
    assert all(line.startswith(f"mrc {name}") for name, pair in EXAMPLES.items() for line in pair)


def test_what_prints_a_result_has_json() -> None:
    """The others show a page, or the output of another program, or serve."""
    names = [name for section in COMMANDS.values() for name in section]
    every = {line for name in names for line in commands_below(GROUP.get_command(None, name), name)}
    assert {name for name in every if "--json" not in options_of(name)} == {"run", "lab exec", "map agent", "view"}


def options_of(name: str) -> set[str]:
    command = GROUP
    for word in name.split():
        command = command.get_command(None, word)
    return {option for parameter in command.params for option in parameter.opts}


def test_the_help_ends_with_its_examples() -> None:
    said = CliRunner().invoke(app, ["fabric", "path", "--help"], env={"COLUMNS": "100"}).stdout
    last = [line.strip() for line in said.splitlines() if line.strip()][-3:]
    assert last == ["Examples:", *EXAMPLES["fabric path"]]


@pytest.mark.parametrize("line", LINES)
def test_an_example_parses(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"\S+\.flight", line):  # the command wants files that exist
        Path(name).touch()
    command, context, rest = GROUP, typer.Context(GROUP, info_name="mrc"), words_of(line)
    while hasattr(command, "commands") and rest and command.get_command(context, rest[0]) is not None:
        name, command, rest = command.resolve_command(context, rest)
        assert name is not None
        context = command.make_context(name, list(rest), parent=context)
        rest = [*context._protected_args, *context.args] if hasattr(command, "commands") else []
    assert rest == []


@pytest.mark.parametrize("line", [each for each in LINES if not ONLY_PARSED.match(each.removeprefix("mrc "))])
def test_an_example_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words_of(line))
    assert result.exit_code == 0, (result.output, result.exception)
    assert result.stdout or any(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_no_help_prints_a_kind_of_value_in_a_programmers_words(name: str) -> None:
    said = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"}).stdout
    assert not re.findall(r"<[\w ]+>|<list\[\w+]>|\b[A-Z]\w+\(\w+=", said)


def test_usage_errors_name_a_help_option_that_exists() -> None:
    said = CliRunner().invoke(app, ["sim", "run", "--nonsense"]).output
    option = re.search(r"Try '.* sim run (\S+)' for help", said)
    assert option is not None, said
    result = CliRunner().invoke(app, ["sim", "run", option[1]])
    assert result.exit_code == 0
    assert "Examples:" in result.stdout


def test_paragraphs_of_a_help_fill_their_lines() -> None:
    said = CliRunner().invoke(app, ["train", "explain", "--help"], env={"COLUMNS": "100"}).stdout
    lines = [line.strip() for line in said.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("FILES are"))
    assert all(len(line) > 80 for line in lines[first : first + 2])


def test_a_mistyped_command_gets_a_suggestion() -> None:
    assert "Did you mean 'fabric'?" in CliRunner().invoke(app, ["fabirc"]).output
