"""Every pair of state and event of a fault's life, and how a controller walks them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from openmrc.operations.diagnosis.denial import DenialController, DenialLimits, DenialOutcome
from openmrc.operations.diagnosis.fault_life import FAULT_TRANSITIONS, FaultEvent, FaultState, fault_after
from spec.state_machines import table

LIVE = DenialLimits(dry_run=False)
ROUTES = {  # the events by which a part comes into each state
    FaultState.LIFTED: (),
    FaultState.SUSPECTED: (FaultEvent.LONE_WORD,),
    FaultState.DOUBTED: (FaultEvent.LONE_WORD, FaultEvent.CONTRADICTED),
    FaultState.NAMED: (FaultEvent.EXPLAINED,),
    FaultState.DENIED: (FaultEvent.DENY,),
    FaultState.REPAIRED: (FaultEvent.DENY, FaultEvent.PASSES),
}


def controller(keeps: bool = True) -> DenialController[str]:
    return DenialController(1, {0: 100}, lambda links: keeps, LIVE)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(FaultState, FaultEvent)))
def test_a_part_moves_as_the_table_says_and_not_otherwise(state: FaultState, event: FaultEvent) -> None:
    made = controller()
    for each in ROUTES[state]:
        made.move("p0-t1-00", each)
    following = FAULT_TRANSITIONS.get((state, event), state)
    assert made.states.get("p0-t1-00", FaultState.LIFTED) == state
    assert made.move("p0-t1-00", event) == following == fault_after(state, event)
    assert ("p0-t1-00" in made.states) == (following != FaultState.LIFTED), "what is lifted is held no longer"


def test_from_every_state_a_part_comes_back_into_use() -> None:
    for state in FaultState:
        reached = {state}
        while more := {FAULT_TRANSITIONS[each, event] for each in reached for event in FaultEvent
                       if (each, event) in FAULT_TRANSITIONS} - reached:  # fmt: skip
            reached |= {FaultState(each) for each in more}
        assert FaultState.LIFTED in reached


def test_links_are_denied_in_the_states_that_say_so() -> None:
    made = controller()
    assert made.fault("a", [1], 0, now=0) == DenialOutcome.DENIED
    assert (made.states["a"], made.denied()) == (FaultState.DENIED, frozenset([1]))
    made.repaired("a")
    assert (made.states["a"], made.denied()) == (FaultState.REPAIRED, frozenset([1]))
    assert made.fault("a", [1], 0, now=1) == DenialOutcome.KNOWN
    assert made.states["a"] == FaultState.DENIED, "it failed again before it was lifted"
    made.repaired("a")
    assert made.lift(now=1e6) == ["a"]
    assert made.states == {}
    assert made.held == {}
    assert not made.denied()


def test_a_part_that_may_not_be_denied_is_named_until_packets_pass() -> None:
    made = controller(keeps=False)
    assert made.fault("a", [1], 0, now=0) == DenialOutcome.LAST_PATH
    assert (made.states, made.held) == ({"a": FaultState.NAMED}, {})
    made.repaired("a")
    assert made.states == {}


def test_the_page_shows_the_table_of_the_code() -> None:
    text = (Path(__file__).parents[3] / "docs" / "map.md").read_text(encoding="utf-8")
    assert table(FaultState, FaultEvent, FAULT_TRANSITIONS) in text
