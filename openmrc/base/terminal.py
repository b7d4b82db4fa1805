"""Tables on a terminal, in a pipe and in a narrow window: text may wrap, numbers never do."""

import copy
import dataclasses
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def name_columns(facts: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in facts)
    return [f"  {name:{width}}  {value}" for name, value in facts]


def row_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a line for each row, the first of which is the head; all rows have as many cells."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def facts_text(facts: Mapping[str, Any]) -> str:
    """Return an object as text for people: values beside their names, long lists below, of objects as tables."""
    plain = [(_named(key), _cell(value)) for key, value in facts.items() if not _is_long(value)]
    lists = [line for key, value in facts.items() if _is_long(value) for line in _listed(key, value)]
    return "\n".join([*(name_columns(plain) if plain else []), *lists])


def _listed(key: str, items: list[Any]) -> Iterator[str]:
    """Yield a list with its name above; objects that have tables of their own follow each other."""
    yield from ("", _named(key))
    if not _are_objects(items):
        yield from (f"  {_cell(item)}" for item in items)
    elif any(_are_objects(value) for item in items for value in item.values()):
        for item in items:
            yield from ("", facts_text(item))
    else:
        names = list(dict.fromkeys(name for item in items for name in item))
        rows = [tuple(_cell(item.get(name, "")) for name in names) for item in items]
        yield from row_columns([tuple(map(_named, names)), *rows])


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _is_long(value: Any) -> bool:
    return _are_objects(value) or (isinstance(value, list) and sum(len(str(item)) for item in value) > _BESIDE)


def _named(key: str) -> str:
    return key.replace("_", " ")


_BESIDE = 60  # characters of a list beside its name


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_named(key)} {_cell(each)}" for key, each in value.items() if each != "")
    if isinstance(value, list | tuple):
        return ", ".join(_cell(each) for each in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun, such as `1 path` or `1,024 paths`."""
    return f"{number:,} {one if number == 1 else many}"


WIDEST = 1000  # columns


def plain_console(stderr: bool = False) -> Console:
    """Return a console that prints text unchanged: no markup, no colours for numbers."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def print_rows(
    header: Sequence[str], rows: Iterable[Sequence[str]], numeric: Container[int] = (), title: str | None = None
) -> None:
    """Print a table; columns whose number is in `numeric` are aligned to the right."""
    table = Table(title=title)
    for at, name in enumerate(header):
        table.add_column(name, justify="right" if at in numeric else "left")
    for row in rows:
        table.add_row(*row)
    print_table(table)


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table, wider than the terminal if its numbers need it; without a terminal, at full width.

    What does not fit a terminal comes below in further tables, each with the columns before the first one of numbers.
    """
    console = console or plain_console()
    options = console.options.update(width=WIDEST, max_width=WIDEST)
    for column in table.columns:
        if column.justify == "right":
            column.no_wrap = True
            column.min_width = max(
                Measurement.get(console, options, each).maximum for each in (column.header, *column.cells)
            )
    if not console.is_terminal:
        console.width = Measurement.get(console, options, table).maximum
        console.print(table)
        return
    for part in _parts(table, lambda part: Measurement.get(console, options, part).minimum <= console.width):
        console.width = max(console.width, Measurement.get(console, options, part).minimum)
        console.print(part)


def _parts(table: Table, fits: Callable[[Table], bool]) -> Iterator[Table]:
    """Yield tables of as many columns as fit, at least one beside those that name the rows."""
    many = len(table.columns)
    begun = names = next((at for at, column in enumerate(table.columns) if column.justify == "right"), 0)
    while names and not fits(_part(table, names, begun, many)) and begun + 1 < many:
        end = next((end for end in range(many - 1, begun + 1, -1) if fits(_part(table, names, begun, end))), begun + 1)
        yield _part(table, names, begun, end)
        begun = end
    yield _part(table, names, begun, many) if begun > names else table


def _part(table: Table, names: int, begun: int, end: int) -> Table:
    """Return a table of its first columns, which name the rows, and of some others."""
    part = copy.copy(table)
    chosen = [*table.columns[:names], *table.columns[begun:end]]
    part.columns = [dataclasses.replace(column, _index=at) for at, column in enumerate(chosen)]
    part.title = table.title if begun == names else None
    part.caption = table.caption if end == len(table.columns) else None
    return part
