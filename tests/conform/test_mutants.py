"""The list of mutants and what is kept of them: each still changes a line of the engine, and a sample is run again."""

from __future__ import annotations

import pytest

from bench.conform import mutants as bench
from openmrc.conform.catalogue import clauses, shipped_tests
from spec.mutation import HANGS, LONG, Mutant, mutated, outcome, outcomes_of, read_mutants

MUTANTS = read_mutants()
KEPT = bench.kept()
SAMPLE = [mutant for mutant in MUTANTS if not mutant.survives][:: max(len(MUTANTS) // 8, 1)]
CLAUSE_OF = {test.id: test.clause for test in shipped_tests()}
IDS = [f"{number}-{mutant.clause}" for number, mutant in enumerate(MUTANTS)]


def test_there_are_at_least_a_hundred_and_each_is_about_a_clause() -> None:
    assert len(MUTANTS) >= 100
    assert {mutant.clause for mutant in MUTANTS} <= set(clauses())
    assert set(LONG) <= set(CLAUSE_OF)


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_what_a_mutant_changes_is_in_the_engine_once(mutant: Mutant) -> None:
    assert mutated(mutant) != mutant.old


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_mutant_was_noticed_by_a_test_of_its_clause_or_says_why_not(mutant: Mutant) -> None:
    result = KEPT[mutant.key]
    assert set(result["fails"]) <= set(CLAUSE_OF)
    assert bool(bench.own_of(mutant, result)) != bool(mutant.survives)


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_each_further_test_that_noticed_a_mutant_stands_beside_it_with_the_reason(mutant: Mutant) -> None:
    result = KEPT[mutant.key]
    others = set(result["fails"]) - set(bench.own_of(mutant, result))
    assert bench.unexpected(mutant, result) == []
    named = {name for each in mutant.follow if each.tests != "*" for name in each.tests.split()}
    assert named <= others, "listed, but did not notice"
    assert all(each.why.endswith(".") for each in mutant.follow)


def test_a_further_test_that_no_reason_is_given_for_is_unexpected() -> None:
    mutant = next(each for each in MUTANTS if each.follow and each.follow[0].tests != "*")
    covered = [name for each in mutant.follow for name in each.tests.split()]
    stranger = next(test.id for test in shipped_tests() if test.clause != mutant.clause and test.id not in covered)
    result = {"fails": [*KEPT[mutant.key]["fails"], stranger]}
    assert stranger in bench.unexpected(mutant, result)
    assert "unexpected" in bench.row(mutant, result)
    assert "unexpected" in bench.line_of(mutant, result)


def test_the_page_of_mutants_is_current() -> None:
    assert "\n".join(bench.table(KEPT)) in bench.PAGE.read_text(encoding="utf-8"), (
        "python -m bench.conform.mutants --write"
    )


def test_a_result_goes_stale_with_the_scripts_and_takes_in_what_was_run_again() -> None:
    assert bench.is_due(None, "now", adds=False)
    assert not bench.is_due({"scripts": "before"}, "now", adds=False)
    assert bench.is_due({"scripts": "before"}, "now", adds=True)
    first, second, third = (test.id for test in shipped_tests()[:3])
    assert bench.merged([third, first], [second], [second, third]) == [first, second]


@pytest.mark.exhaustive
@pytest.mark.parametrize("mutant", SAMPLE, ids=[mutant.clause for mutant in SAMPLE])
def test_what_is_kept_of_a_mutant_comes_again(mutant: Mutant) -> None:
    tests = [test for test in shipped_tests() if test.clause == mutant.clause]
    unbroken = {test.id: outcome(test) for test in tests}
    found = outcomes_of(mutant, tests)
    changed = [name for name, outcome_ in unbroken.items() if found.get(name, HANGS) != outcome_]
    assert changed == bench.own_of(mutant, KEPT[mutant.key])
