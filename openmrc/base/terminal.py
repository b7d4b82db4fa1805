"""Tables on a terminal, in a pipe and in a narrow window: text may wrap, numbers never do."""

from __future__ import annotations

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

WIDEST = 1000  # columns


def plain_console(stderr: bool = False) -> Console:
    """Return a console that prints text unchanged: no markup, no colours for numbers."""
    return Console(stderr=stderr, markup=False, highlight=False)


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table, wider than the terminal if its numbers need it; without a terminal, at full width."""
    console = console or plain_console()
    for column in table.columns:
        column.no_wrap = column.no_wrap or column.justify == "right"
    needs = Measurement.get(console, console.options.update(width=WIDEST, max_width=WIDEST), table)
    console.width = max(console.width, needs.minimum) if console.is_terminal else needs.maximum
    console.print(table)
