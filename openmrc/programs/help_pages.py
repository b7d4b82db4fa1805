"""Help of the subcommands: kinds of values in words, square brackets as written, examples at the end, -h for --help."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import typer

_MARKUP = re.compile(r"(\\*)(\[[a-z#/@][^[]*?])")  # rich interprets this as a tag
# A flag takes no value; the range of a number is printed beside it.
_KINDS = {"bool": "", "int": "N", "int range": "N", "float": "NUMBER", "float range": "NUMBER", "str": "TEXT"}
_KINDS |= {"path": "PATH", "Path": "PATH"}
HELP_OPTIONS = ["-h", "--help"]
EXAMPLES: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("examples.toml").read_text("utf-8"))
_LINE_END = re.compile(r"(?<!\n)\n(?!\n)")  # within a paragraph
_KIND = re.compile(r"<(?:list\[)?([\w ]+)]?>")


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
    command.help = _escaped(_flowing(command.help))
    below = getattr(command, "commands", {})
    for each, found in below.items():
        complete(found, f"{name} {each}")
    if name in EXAMPLES:
        command.epilog = _escaped("\n\n".join(("Examples:", *EXAMPLES[name])))


def _nothing(ctx: Any) -> None:
    return None


def _flowing(text: str | None) -> str | None:
    """Return paragraphs of one line each: all but the first would else be broken where the docstring is."""
    return _LINE_END.sub(" ", text) if text else text


def _escaped(text: str | None) -> str | None:
    return _MARKUP.sub(r"\1\1\\\2", text) if text else text
