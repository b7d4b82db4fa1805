"""Commands whose options are dataclasses: one parameter per group, which may name its `panel` of the help."""

import functools
import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each dataclass parameter replaced by its fields, for typer to read."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}  # type: ignore[misc]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        kinds = get_type_hints(groups[name], include_extras=True)
        panel = getattr(groups[name], "panel", None)
        for field in fields(groups[name]):
            annotation = kinds[field.name] if panel is None else _in_panel(kinds[field.name], panel)
            parameters.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation
                )
            )
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _in_panel(annotation: Any, panel: str) -> Any:
    """Return an option of a panel: a copy, for commands and groups may share the annotation."""
    option = copy(annotation.__metadata__[0])
    option.rich_help_panel = panel
    return Annotated[annotation.__origin__, option]
