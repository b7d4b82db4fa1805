"""Tables keep their numbers whole."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from openmrc.base.terminal import print_table


def printed(width: int, is_terminal: bool) -> str:
    table = Table()
    for name in ("number", "another", "text"):
        table.add_column(name, justify="left" if name == "text" else "right")
    table.add_row("123,456,789,012", "987,654,321,098", "[fe80::1%eth0]:4791 and some words that may wrap")
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=is_terminal, markup=False, highlight=False)
    print_table(table, console)
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_numbers_and_square_brackets_are_whole_at_any_width(width: int, is_terminal: bool) -> None:
    said = printed(width, is_terminal)
    for text in ("123,456,789,012", "987,654,321,098", "[fe80::1%eth0]:4791"):
        assert text in said


def test_a_pipe_gets_a_row_in_one_line() -> None:
    assert "that may wrap" in printed(20, is_terminal=False)
