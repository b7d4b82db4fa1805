"""Figures in the docs come from the runs that are kept in bench/results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.figures import PAGES, RESULTS, ROOT, SECTION, Figure, figures, machines, number, pages, recorded


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_show_what_is_kept(page: Path) -> None:
    """Renew with `make figures`."""
    shown = page.read_text().partition(f"<!-- {SECTION} -->")[2].partition(f"<!-- end of {SECTION} -->")[0]
    assert shown.strip() == pages()[page].strip()


def test_every_kept_run_answers_a_question() -> None:
    known = {figure.name for figure in figures()}
    assert {path.stem for path in RESULTS.glob("*.json")} <= known
    assert all(run.machine in machines() for figure in figures() for run in recorded(figure))


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.name)
def test_a_figure_names_a_bench_and_where_it_prints(figure: Figure) -> None:
    module = re.match(r"python -m ([\w.]+)", figure.command)
    assert module is not None
    assert (ROOT / (module[1].replace(".", "/") + ".py")).exists()
    assert re.compile(figure.pattern).groups == 1
    assert figure.meets(1.0) in ({None} if not figure.goal else {True, False})


@pytest.mark.parametrize(
    ("value", "text"), [(0.61, "0.61"), (1890.4, "1,890"), (33.51, "33.5"), (526, "526"), (0.00012, "0.00012")]
)
def test_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text
