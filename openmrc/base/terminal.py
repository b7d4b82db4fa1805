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
    """Return an object as text for people: plain values beside their names, lists of objects as tables below."""
    plain = [(_name(key), _cell(value)) for key, value in facts.items() if not isinstance(value, list)]
    lists = [(key, value) for key, value in facts.items() if isinstance(value, list) and value]
    return "\n".join([*name_columns(plain), *(line for key, value in lists for line in _listed(key, value))])


def _listed(key: str, items: list[Any]) -> Iterator[str]:
    yield from ("", _name(key))
    if not isinstance(items[0], Mapping):
        yield from (f"  {_cell(item)}" for item in items)
        return
    names = list(dict.fromkeys(name for item in items for name in item))
    rows = [tuple(_cell(item.get(name, "")) for name in names) for item in items]
    yield from row_columns([tuple(_name(name) for name in names), *rows])


def _name(key: str) -> str:
    return key.replace("_", " ")


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_name(name)} {_cell(each)}" for name, each in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


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
