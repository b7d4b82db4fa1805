"""Figures of many runs: a line of JSON for each, and a table of all, also of lines kept from earlier runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.page import put

Figures = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `show` reads."""
    parser.add_argument("--json", action="store_true", help="a line for each run")
    parser.add_argument("--table", type=Path, help="print the table of these figures, lines of --json")
    parser.add_argument("--write", action="store_true", help="put it into docs/evidence/all-to-all.md")


def show(
    options: argparse.Namespace,
    runs: Iterable[Figures],
    table: Callable[[list[Figures]], Iterator[str]],
    page: Path,
    section: str,
) -> None:
    """Print the runs as lines or as a table; with --table run nothing and print that of kept lines."""
    if options.table:
        summary = "\n".join(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        print(summary)
        if options.write:
            put(page, section, summary)
        return
    lines = []
    for figures in runs:
        lines.append(figures)
        if options.json:
            print(json.dumps(figures), flush=True)
    if not options.json:
        print("\n".join(table(lines)))
