"""Tables on a terminal, in a pipe and in a narrow window: text may wrap, numbers never do."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
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
    return Console(stderr=stderr, markup=False, highlight=False)


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
    """Print a table, wider than the terminal if its numbers need it; without a terminal, at full width."""
    console = console or plain_console()
    for column in table.columns:
        column.no_wrap = column.no_wrap or column.justify == "right"
    needs = Measurement.get(console, console.options.update(width=WIDEST, max_width=WIDEST), table)
    console.width = max(console.width, needs.minimum) if console.is_terminal else needs.maximum
    console.print(table)
