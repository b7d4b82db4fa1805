"""The `mrc` command: find the subcommand; turn the package's errors into one line and an exit code.

Subcommands are imported when they are called; the main help imports none.
"""

import difflib
import functools
import gc
import importlib
import io
import os
import re
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from openmrc.errors import MrcError, UsageError
from openmrc.programs.outcome import USAGE, json_errors, reason

_MARKUP = re.compile(r"(\\*)(\[[a-z#/@][^[]*?])")  # rich interprets this as a tag
# A flag takes no value; the range of a number is printed beside it.
_KINDS = {"bool": "", "int": "N", "int range": "N", "float": "NUMBER", "float range": "NUMBER", "str": "TEXT"}
_KINDS |= {"path": "PATH", "Path": "PATH"}
HELP_OPTIONS = ["-h", "--help"]
_LINE_END = re.compile(r"(?<!\n)\n(?!\n)")  # within a paragraph
_KIND = re.compile(r"<(?:list\[)?([\w ]+)]?>")


class Subcommand(NamedTuple):
    """Location of a command, and its line in the help above it."""

    target: str  # "module:attribute" in openmrc.programs: a function, or a Typer with subcommands
    about: str


class CommandGroup(NamedTuple):
    """Commands below a command, and its line in the main help."""

    about: str
    commands: dict[str, Subcommand]


def _read(text: str) -> dict[str, dict[str, Subcommand | CommandGroup]]:
    """Return the commands by section; cells are two spaces or more apart: reading TOML takes too long here."""
    sections: dict[str, dict[str, Subcommand | CommandGroup]] = {}
    section: dict[str, Subcommand | CommandGroup] = {}
    group = CommandGroup("", {})
    for line in text.splitlines():
        name, *cells = re.split(" {2,}", line.strip())
        if line.startswith("    "):
            group.commands[name] = Subcommand(*cells)
        elif len(cells) == 1:
            group = section[name] = CommandGroup(cells[0], {})
        elif cells:
            section[name] = Subcommand(*cells)
        elif name and not name.startswith("#"):
            section = sections[name] = {}
    return sections


COMMANDS = _read(Path(__file__).with_name("commands.txt").read_text("utf-8"))


class LazyGroup(TyperGroup):
    """A group that imports a command only to run it, to complete it or to show its help."""

    sections: Mapping[str, Mapping[str, Subcommand | CommandGroup]] = COMMANDS
    path = ""  # of the command, below mrc

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        return [name for section in self.sections.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return the command; None if the name is unknown."""
        found = next((section[cmd_name] for section in self.sections.values() if cmd_name in section), None)
        if found is None:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _load(f"{self.path} {cmd_name}".strip(), found)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names; suggest a similar one if there is none."""
        if self.get_command(ctx, args[0]) is None and args[0][:1].isalnum():
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with --json, a failure also prints an object."""
        with nullcontext() if self.path else json_errors(ctx.args):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(len(name) for section in self.sections.values() for name in section)
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), command.about) for name, command in section.items()])


def _load(path: str, command: Subcommand | CommandGroup) -> Any:
    name = path.split()[-1]
    if isinstance(command, CommandGroup):
        group = LazyGroup(name=name, help=command.about, no_args_is_help=True, rich_markup_mode=None)
        group.path, group.sections = path, {"Commands": command.commands}
        return group
    module, _, attribute = command.target.partition(":")
    gc.disable()  # hundreds of modules come and nothing goes: looking for cycles among them takes a tenth of the time
    try:
        target = getattr(importlib.import_module(f"openmrc.programs.{module}"), attribute)
    finally:
        gc.enable()
    if isinstance(target, typer.Typer):
        loaded: Any = typer.main.get_group(target)
        loaded.name = name
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name, context_settings=getattr(target, "context_settings", None))(target)
        loaded = typer.main.get_command(alone)
    complete(loaded, path)
    return loaded


@functools.cache
def examples() -> dict[str, list[str]]:
    """Return the examples of each command."""
    import tomllib

    return tomllib.loads(Path(__file__).with_name("examples.toml").read_text("utf-8"))


def complete(command: Any, name: str) -> None:
    """Prepare the help of a command, known as `mrc NAME`, and of the commands below it."""
    context = typer.Context(command, help_option_names=HELP_OPTIONS)  # the command keeps the option that is made here
    for parameter in command.get_params(context):  # with --help, which is no member of `params`
        kind = _KIND.fullmatch(parameter.display_type_rich(context) or "")
        if parameter.param_type_name == "option":
            parameter.metavar = _KINDS.get(kind[1], parameter.metavar) if kind else parameter.metavar
        else:
            parameter.metavar = parameter.metavar or parameter.name.upper()
            if kind:
                parameter.display_type_rich = _nothing  # the metavar says it
        parameter.help = _escaped(getattr(parameter, "help", None))
    command.help = _escaped(_LINE_END.sub(" ", command.help) if command.help else command.help)
    below = getattr(command, "commands", {})
    for each, found in below.items():
        complete(found, f"{name} {each}")
    if name in examples():
        command.epilog = _escaped("\n\n".join(("Examples:", *examples()[name])))


def _nothing(ctx: Any) -> None:
    return None


def _escaped(text: str | None) -> str | None:
    return _MARKUP.sub(r"\1\1\\\2", text) if text else text


app = typer.Typer(
    name="mrc",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rendering the main help with rich would double its time
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="mrc COMMAND --help has examples. Results print as JSON by --json. Completion: mrc --install-completion.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"mrc {version('openmrc')}")
        raise typer.Exit


@app.callback()
def mrc(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Multipath Reliable Connection (OCP MRC 1.0) in software."""


def main() -> None:
    """Run the command line. An error prints one line on stderr; the exit code is 2 for wrong usage, otherwise 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the locale lacks, of a bar, is no error
    os.environ.setdefault("TERM", "dumb")  # no type of terminal is known: no colours, no cursor
    try:
        app()
    except (MrcError, MemoryError, OSError) as error:
        about = reason(error)
        if about is None:
            raise
        typer.echo(f"mrc: {about}", err=True)
        sys.exit(USAGE if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()
