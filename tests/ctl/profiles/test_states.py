import itertools

import pytest

from openmrc.ctl.profiles.states import (
    ALL_RULES,
    AUTO_RULES,
    CC_RULES,
    EXPLICIT_RULES,
    FORMAT_RULES,
    CcAttribute,
    EvAttribute,
    ProfileRules,
    ProfileState,
    check_change,
    check_known,
)
from openmrc.errors import BusyError, InvalidArgumentError
from spec.profile_table import table

INIT, OFFLINE, ONLINE = ProfileState


@pytest.mark.parametrize("rules", ALL_RULES, ids=lambda rules: rules.name)
@pytest.mark.parametrize(("origin", "target"), list(itertools.product(ProfileState, repeat=2)))
def test_every_pair_of_states_is_a_step_a_shortcut_or_refused(
    origin: ProfileState, target: ProfileState, rules: ProfileRules
) -> None:
    nothing = type(rules.while_online)(0)
    if (origin, target) == (ONLINE, INIT):
        with pytest.raises(InvalidArgumentError, match="from ONLINE to INIT; allowed from here: OFFLINE"):
            check_change(rules, origin, target, nothing, 0)
    else:
        check_change(rules, origin, target, nothing, 0)


@pytest.mark.parametrize("rules", ALL_RULES, ids=lambda rules: rules.name)
def test_each_attribute_a_step_needs_is_missed_by_name(rules: ProfileRules) -> None:
    every = rules.needs[OFFLINE] | rules.needs[ONLINE]
    for origin, target in ((INIT, OFFLINE), (OFFLINE, ONLINE), (INIT, ONLINE)):
        check_known(rules, origin, target, every)
        for attribute in rules.needs[target]:
            with pytest.raises(InvalidArgumentError, match=f"to {target.name} needs .*missing: {attribute.name} "):
                check_known(rules, origin, target, every & ~attribute)
    with pytest.raises(InvalidArgumentError, match="to OFFLINE needs"):  # the first step first
        check_known(rules, INIT, ONLINE, type(every)(0))
    check_known(rules, ONLINE, OFFLINE, every)


@pytest.mark.parametrize("rules", ALL_RULES, ids=lambda rules: rules.name)
def test_online_only_what_the_table_lists_may_change(rules: ProfileRules) -> None:
    for attribute in type(rules.while_online):
        if attribute in rules.while_online:
            check_change(rules, ONLINE, ONLINE, attribute, 0)
        else:
            with pytest.raises(InvalidArgumentError, match=f"{attribute.name}: not while"):
                check_change(rules, ONLINE, ONLINE, attribute, 0)


def test_a_profile_in_use_keeps_its_state() -> None:
    nothing = EvAttribute(0)
    for rules in (EXPLICIT_RULES, CC_RULES, FORMAT_RULES):
        with pytest.raises(BusyError, match=rules.busy.format(3)):
            check_change(rules, ONLINE, OFFLINE, nothing, 3)
    check_change(EXPLICIT_RULES, ONLINE, ONLINE, EvAttribute.REPLACE_EV, 3)
    with pytest.raises(BusyError, match="3 queue pairs"):
        check_change(EXPLICIT_RULES, ONLINE, ONLINE, EvAttribute.MODIFY_FIELDS, 3)


def test_the_tables_say_what_the_controller_api_says() -> None:
    assert EXPLICIT_RULES.needs[ONLINE] == EvAttribute.MIN_ACTIVE | EvAttribute.EVENT_MASK | EvAttribute.REPLACE_EV
    assert AUTO_RULES.needs[OFFLINE] == EvAttribute.MODE
    assert FORMAT_RULES.while_online.name == "STATE"
    assert CC_RULES.needs == {OFFLINE: CcAttribute.ALGORITHM, ONLINE: CcAttribute.CONFIG}


def test_a_row_of_the_table_holds_what_each_step_needs_and_what_may_change_online() -> None:
    row = next(row for row in table().splitlines() if row.startswith("| EV, EXPLICIT |"))
    assert "| MODE, FMT_ID, COUNT, MODIFY_FIELDS | MIN_ACTIVE, EVENT_MASK, REPLACE_EV | STATE, EVENT_MASK, " in row
    assert row.endswith("| STATE, EVENT_MASK, MODIFY_EV_STATE, MODIFY_FIELDS, REPLACE_EV |")
