"""Tables keep their numbers whole."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from openmrc.base.terminal import facts_text, print_rows, print_table


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


def test_rows_are_a_table_with_its_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("name", "count"), [("a", "1"), ("b", "22")], {1}, "title")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "title"
    assert [line.split("│")[1:3] for line in lines if "│" in line] == [[" a    ", "     1 "], [" b    ", "    22 "]]


def test_an_object_is_its_values_and_below_them_its_lists() -> None:
    port = {"port": 1, "up": True, "faults": ["admin", "carrier"]}
    ev = {"ev": 0xC105, "sent": 100_000, "rtt_ns": None, "at": {"host": "a", "peer": ""}}
    text = facts_text({"free_evs": 0, "ports": [port, port | {"faults": []}], "pairs": [{"qpn": 16, "evs": [ev]}]})
    assert text.splitlines() == [
        "  free evs  0",
        "",
        "ports",
        "  port  up   faults",
        "  1     yes  admin, carrier",
        "  1     yes  none",
        "",
        "pairs",
        "",
        "  qpn  16",
        "",
        "evs",
        "  ev      sent     rtt ns  at",
        "  49,413  100,000  -       host a",
    ]


def test_an_empty_list_says_so() -> None:
    assert facts_text({"votes": []}) == "  votes  none"


def test_a_short_list_stands_beside_its_name_and_a_long_one_below() -> None:
    assert facts_text({"planes": ["10.0.0.1", "10.1.0.1"]}) == "  planes  10.0.0.1, 10.1.0.1"
    notes = ["a sentence of more than thirty characters"] * 2
    assert facts_text({"notes": notes}).splitlines() == ["", "notes", *(f"  {each}" for each in notes)]


def test_columns_beyond_a_terminal_stand_below_with_the_names_of_the_rows() -> None:
    table = Table(title="sizes", caption="in MB")
    table.add_column("")
    for number in range(6):
        table.add_column(f"design number {number}", justify="right")
    table.add_row("all of it", *(f"{number} of 1,024 parts" for number in range(6)))
    file = io.StringIO()
    console = Console(file=file, width=60, force_terminal=True, color_system=None, markup=False, highlight=False)
    print_table(table, console)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    for number in range(6):
        (row,) = [line for line in lines if f"{number} of 1,024 parts" in line]
        assert "all of it" in row
        assert any(f"design number {number}" in line for line in lines)
    assert [file.getvalue().count(text) for text in ("sizes", "in MB")] == [1, 1]
