"""The list of mutants: each still changes a line of the engine, and a sample of them is noticed."""

from __future__ import annotations

import pytest

from openmrc.conform.catalogue import clauses, shipped_tests
from spec.mutation import LONG, Mutant, mutated, outcome, outcomes_of, read_mutants

MUTANTS = read_mutants()
SAMPLE = [mutant for mutant in MUTANTS if not mutant.survives][:: max(len(MUTANTS) // 8, 1)]
CLAUSE_OF = {test.id: test.clause for test in shipped_tests()}


def test_there_are_at_least_a_hundred_and_each_is_about_a_clause() -> None:
    assert len(MUTANTS) >= 100
    assert {mutant.clause for mutant in MUTANTS} <= set(clauses())
    assert set(LONG) <= set(CLAUSE_OF)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{n}-{mutant.clause}" for n, mutant in enumerate(MUTANTS)])
def test_what_a_mutant_changes_is_in_the_engine_once(mutant: Mutant) -> None:
    assert mutated(mutant) != mutant.old


@pytest.mark.exhaustive
@pytest.mark.parametrize("mutant", SAMPLE, ids=[mutant.clause for mutant in SAMPLE])
def test_a_test_of_its_clause_notices_a_mutant(mutant: Mutant) -> None:
    tests = [test for test in shipped_tests() if test.clause == mutant.clause]
    unbroken = {test.id: outcome(test) for test in tests}
    found = outcomes_of(mutant, tests)
    assert any(found.get(name, "hangs") != outcome_ for name, outcome_ in unbroken.items())
