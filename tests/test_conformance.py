"""Every rule we know of stands somewhere, is shown by a test, or says why not."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from spec.conformance import (
    LIBRARY_ONLY,
    PAGE,
    ROOT,
    STATUSES,
    Clause,
    find_tests,
    marked_tests,
    page,
    read_clauses,
    shown_by,
)

CLAUSES = read_clauses()


def test_ids_are_unique_and_statuses_known() -> None:
    ids = [clause.id for clause in CLAUSES]
    assert len(ids) == len(set(ids))
    assert {clause.status for clause in CLAUSES} <= set(STATUSES)


@pytest.mark.parametrize("clause", CLAUSES, ids=[clause.id for clause in CLAUSES])
def test_clause_stands_where_it_says_and_is_shown_or_excused(clause: Clause) -> None:
    for name in clause.code:
        assert stands(name), f"openmrc.{name} does not exist"
    for test in shown_by(clause, marked_tests()):
        path, _, function = test.partition("::")
        assert function in names_of_tests(ROOT / path), f"{test} does not exist"
    if clause.status in ("done", "ours"):
        assert clause.code, "it must say where it stands"
        assert shown_by(clause, marked_tests()), "no test shows it"
    if clause.status != "done":
        assert clause.reason, "it must say why"


def test_a_rule_is_done_only_where_a_program_reaches_its_code() -> None:
    by_id = {clause.id: clause for clause in CLAUSES}
    assert by_id["wire-order"].shown_status == "done"
    unreached = Clause(
        id="", area="", section="", rule="", status="done", code=("programs.training.measurement.seconds_in_place",)
    )
    assert unreached.shown_status == LIBRARY_ONLY


def test_every_mark_names_a_clause() -> None:
    assert set(marked_tests()) <= {clause.id for clause in CLAUSES}


def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(CLAUSES, marked_tests()), "run: python -m spec.conformance"


@functools.cache
def names_of_tests(path: Path) -> frozenset[str]:
    return frozenset(function.name for function in find_tests(path))


def stands(name: str) -> bool:
    """Whether module.thing exists below openmrc, by reading the source."""
    module, _, thing = name.rpartition(".")
    path = ROOT / "openmrc" / (module.replace(".", "/") + ".py")
    return path.is_file() and thing in defined(path)


@functools.cache
def defined(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)
