"""Mutants that are made by machine: which changes are found, and that a seed draws the same ones again."""

from __future__ import annotations

import ast
from collections import Counter

from spec.drawn_mutants import MutationKind, drawn, sites_of

SOURCE = '''
LIMIT = 4

def judge(engine, row, psn):
    """Text of 3 words."""
    row.seen = 7
    if psn <= (row.last - 1) & 0xFF and not row.done is True:
        note(engine, psn)
    return -psn << 2

def choose(many: int | None) -> int:
    chosen: int | None = max(many, 1)
    return chosen
'''


def test_every_kind_of_change_is_found_in_functions_only() -> None:
    found = [(site.kind.name, site.line, site.before, site.after) for site in sites_of("a", SOURCE.encode())]
    assert found == [
        ("DROPPED", 6, "row.seen = 7", "pass"),
        ("CONSTANT", 6, "7", "8"),
        ("COMPARISON", 7, " <= ", " < "),
        ("SWAPPED", 7, "row.last - 1", "(1) - (row.last)"),
        ("SIGN", 7, " - ", " + "),
        ("CONSTANT", 7, "1", "2"),
        ("MASK", 7, ") & ", ") | "),
        ("CONSTANT", 7, "0xFF", "256"),
        ("COMPARISON", 7, " is ", " is not "),
        ("CONSTANT", 7, "True", "False"),
        ("DROPPED", 8, "note(engine, psn)", "pass"),
        ("SWAPPED", 8, "engine, psn", "(psn), (engine)"),
        ("SIGN", 9, "-psn", "(psn)"),
        ("SWAPPED", 9, "-psn << 2", "(2) << (-psn)"),
        ("MASK", 9, " << ", " >> "),
        ("CONSTANT", 9, "2", "3"),
        ("CONSTANT", 12, "1", "2"),  # neither in a type nor by the order of the arguments of max
    ]


def test_a_seed_draws_the_same_changes_of_all_kinds_alike() -> None:
    chosen = drawn(24, seed=7)
    assert [site.place for site in chosen] == [site.place for site in drawn(24, seed=7)]
    assert set(Counter(site.kind for site in chosen)) == set(MutationKind)
    for site in chosen:
        mutant = site.mutant()
        assert ast.dump(ast.parse(mutant.old)) != ast.dump(ast.parse(mutant.new)), site.place
