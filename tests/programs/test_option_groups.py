"""Options of commands that are given as groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from openmrc.programs.option_groups import with_groups

Shared = Annotated[bool, typer.Option("--shared", help="An option of two groups.")]


@dataclass(frozen=True)
class Named:
    """A group with a panel."""

    panel: ClassVar = "Named"
    shared: Shared = False


@dataclass(frozen=True)
class Plain:
    """A group without one."""

    shared: Shared = False


@with_groups
def named(group: Named) -> None:
    """Take the group with a panel."""


@with_groups
def plain(group: Plain) -> None:
    """Take the group without one."""


def _option(command: Callable[..., Any]) -> Any:
    return inspect.signature(command).parameters["shared"].annotation.__metadata__[0]


def test_a_panel_is_of_its_group_only() -> None:
    """An option that groups share is in the panel of the one that names it, and else in none."""
    assert _option(named).rich_help_panel == "Named"
    assert _option(named).help == _option(plain).help
    assert _option(plain).rich_help_panel is None
