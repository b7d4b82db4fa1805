import itertools

import pytest

from openmrc.errors import InvalidArgumentError
from openmrc.profiles.profile_states import (
    ALL_RULES,
    AUTO_RULES,
    CC_RULES,
    EXPLICIT_RULES,
    FORMAT_RULES,
    CcAttribute,
    EvAttribute,
    ProfileRules,
    ProfileState,
    check_online_change,
    check_step,
    route,
)
from spec.profile_table import table

INIT, OFFLINE, ONLINE = ProfileState


@pytest.mark.parametrize(("origin", "target"), list(itertools.product(ProfileState, repeat=2)))
def test_every_pair_of_states_is_a_step_a_shortcut_or_refused(origin: ProfileState, target: ProfileState) -> None:
    if origin == target:
        assert route(origin, target) == ()
    elif (origin, target) == (INIT, ONLINE):
        assert route(origin, target) == (OFFLINE, ONLINE)
    elif (origin, target) == (ONLINE, INIT):
        with pytest.raises(InvalidArgumentError, match="from ONLINE to INIT; allowed from here: OFFLINE"):
            route(origin, target)
    else:
        assert route(origin, target) == (target,)


@pytest.mark.parametrize("rules", ALL_RULES, ids=lambda rules: rules.name)
def test_each_attribute_a_step_needs_is_missed_by_name(rules: ProfileRules) -> None:
    for state, needed in rules.needs.items():
        check_step(rules, state, needed)
        for attribute in needed:
            with pytest.raises(InvalidArgumentError, match=f"missing: {attribute.name} "):
                check_step(rules, state, needed & ~attribute)


@pytest.mark.parametrize("rules", ALL_RULES, ids=lambda rules: rules.name)
def test_online_only_what_the_table_lists_may_change(rules: ProfileRules) -> None:
    for attribute in type(rules.while_online):
        for capable in (False, True):
            allowed = attribute in rules.while_online or (capable and attribute in rules.while_online_optional)
            if allowed:
                check_online_change(rules, attribute, capable)
            else:
                with pytest.raises(InvalidArgumentError, match=f"{attribute.name}: not while"):
                    check_online_change(rules, attribute, capable)


def test_the_tables_say_what_the_controller_api_says() -> None:
    assert EXPLICIT_RULES.needs[ONLINE] == EvAttribute.MIN_ACTIVE | EvAttribute.EVENT_MASK | EvAttribute.REPLACE_EV
    assert AUTO_RULES.needs[OFFLINE] == EvAttribute.MODE
    assert FORMAT_RULES.while_online.name == "STATE"
    assert CC_RULES.needs == {OFFLINE: CcAttribute.ALGORITHM, ONLINE: CcAttribute.CONFIG}


def test_a_row_of_the_table_holds_what_each_step_needs_and_what_may_change_online() -> None:
    row = next(row for row in table().splitlines() if row.startswith("| EV, EXPLICIT |"))
    assert "| MODE, FMT_ID, COUNT, MODIFY_FIELDS | MIN_ACTIVE, EVENT_MASK, REPLACE_EV | STATE, MODIFY_EV_STATE |" in row
