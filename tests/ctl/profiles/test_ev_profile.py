from dataclasses import replace

import pytest

from openmrc.ctl.profiles.ev_array import UNPOPULATED, EvEntry, EvOpEntry
from openmrc.ctl.profiles.ev_configuration import EvFormatProfile, EvLimits, EvProfileChange, FormatChange
from openmrc.ctl.profiles.ev_format import EvField, EvFormatMode
from openmrc.ctl.profiles.ev_profile import EvProfile
from openmrc.ctl.profiles.ev_rules import EvEntryState, EvMode, EvOp
from openmrc.ctl.profiles.states import ProfileState
from openmrc.errors import BusyError, InvalidArgumentError, NotFoundError, TooBigError
from tests.ctl.profiles.carriers import AnyCarrier

INIT, OFFLINE, ONLINE = ProfileState
GOOD, BAD, DENIED = EvEntryState.GOOD, EvEntryState.ASSUMED_BAD, EvEntryState.DENIED
FIELDS = (EvField(16, 0x100, 1, 15, 0xF), EvField(16, 0x200, 1, 15, 0xF))
LIMITS = EvLimits(ports=4)


def ev(byte: int, port: int = 1) -> EvEntry:
    return EvEntry(bytes([byte]) + bytes(31), port)


def online_format() -> EvFormatProfile:
    form = EvFormatProfile()
    form.modify(FormatChange(state=ONLINE, mode=EvFormatMode.STEV, widths=(16, 16)))
    return form


def offline(mode: EvMode, count: int = 4, limits: EvLimits = LIMITS) -> EvProfile:
    profile = EvProfile(limits, AnyCarrier(limits.ports))
    profile.modify(EvProfileChange(state=OFFLINE, mode=mode, format=online_format(), count=count, fields=FIELDS))
    return profile


TO_ONLINE = EvProfileChange(state=ONLINE, min_active=1, event_mask=BAD)


def filled(profile: EvProfile, evs: list[EvEntry]) -> EvProfile:
    batch = [EvOpEntry(UNPOPULATED, GOOD, each) for each in evs]
    profile.modify(EvProfileChange(ev_op=EvOp.REPLACE_EV, entries=batch))
    return profile


def online(evs: list[EvEntry], limits: EvLimits = LIMITS) -> EvProfile:
    profile = filled(offline(EvMode.EXPLICIT, len(evs), limits), evs)
    profile.modify(TO_ONLINE)
    return profile


# Formats


def test_a_format_goes_up_and_down_step_by_step() -> None:
    form = EvFormatProfile()
    form.modify(FormatChange(state=OFFLINE, mode=EvFormatMode.UDP))
    form.modify(FormatChange(widths=(16,)))
    form.modify(FormatChange(state=ONLINE))
    form.modify(FormatChange(state=OFFLINE))
    form.modify(FormatChange(state=INIT))
    assert (form.state, form.format) == (INIT, None)


def test_a_format_without_fields_does_not_go_online() -> None:
    form = EvFormatProfile()
    with pytest.raises(InvalidArgumentError, match="missing: MODIFY_FIELDS"):
        form.modify(FormatChange(state=ONLINE, mode=EvFormatMode.UDP))
    assert form.state == INIT


def test_an_unsupportable_format_changes_nothing() -> None:
    form = EvFormatProfile()
    form.modify(FormatChange(state=OFFLINE, mode=EvFormatMode.UDP, widths=(8,)))
    with pytest.raises(TooBigError):
        form.modify(FormatChange(widths=(8, 9)))
    assert form.widths == (8,)


def test_an_online_format_keeps_its_fields() -> None:
    with pytest.raises(InvalidArgumentError, match="MODIFY_FIELDS: not while"):
        online_format().modify(FormatChange(widths=(8,)))


def test_a_format_is_busy_while_an_ev_profile_is_online_with_it() -> None:
    profile = online([ev(0x11)])
    form = profile.configuration.format
    assert form is not None
    with pytest.raises(BusyError) as caught:
        form.modify(FormatChange(state=OFFLINE))
    assert caught.value.errno == 16
    profile.modify(EvProfileChange(state=OFFLINE))
    form.modify(FormatChange(state=OFFLINE))
    assert form.state == OFFLINE


# Steps


@pytest.mark.parametrize("missing", ["mode", "format", "count", "fields"])
def test_offline_needs_the_shape(missing: str) -> None:
    change = EvProfileChange(state=OFFLINE, mode=EvMode.EXPLICIT, format=online_format(), count=4, fields=FIELDS)
    profile = EvProfile(LIMITS, AnyCarrier(4))
    with pytest.raises(InvalidArgumentError, match="missing: "):
        profile.modify(replace(change, **{missing: None}))  # type: ignore[arg-type]
    assert (profile.state, profile.configuration.known) == (INIT, 0)


@pytest.mark.parametrize("missing", ["min_active", "event_mask"])
def test_online_needs_the_limits(missing: str) -> None:
    profile = offline(EvMode.GENERATED)
    with pytest.raises(InvalidArgumentError, match=f"missing: {missing.upper()}"):
        profile.modify(replace(TO_ONLINE, **{missing: None}))  # type: ignore[arg-type]
    assert profile.state == OFFLINE


def test_explicit_arrays_start_unpopulated_and_must_be_filled() -> None:
    profile = offline(EvMode.EXPLICIT, 2)
    assert profile.array.entries() == [(UNPOPULATED, EvEntryState.UNKNOWN)] * 2
    filled(profile, [ev(0x11)])
    with pytest.raises(InvalidArgumentError, match="1 of 2 entries are unpopulated"):
        profile.modify(TO_ONLINE)
    filled(profile, [ev(0x22)])
    profile.modify(TO_ONLINE)
    assert (profile.state, profile.array.good) == (ONLINE, 2)


def test_a_generated_profile_may_be_set_up_in_one_call() -> None:
    profile = EvProfile(LIMITS, AnyCarrier(4), seed=9)
    profile.modify(
        replace(TO_ONLINE, mode=EvMode.GENERATED, format=online_format(), count=100, fields=FIELDS, min_active=25)
    )
    evs = [entry for entry, _ in profile.array.entries()]
    assert profile.state == ONLINE
    assert len({entry.value for entry in evs}) == 100
    assert [entry.port for entry in evs[:5]] == [1, 2, 3, 4, 1]


def test_an_auto_profile_needs_neither_format_nor_fields() -> None:
    profile = EvProfile(LIMITS, AnyCarrier(4))
    profile.modify(replace(TO_ONLINE, mode=EvMode.AUTO))
    assert (profile.state, profile.array.entries(), profile.usable()) == (ONLINE, [], [])


def test_an_ev_profile_needs_its_format_online() -> None:
    profile = offline(EvMode.GENERATED)
    form = profile.configuration.format
    assert form is not None
    form.modify(FormatChange(state=OFFLINE))
    with pytest.raises(InvalidArgumentError, match="format: it is OFFLINE"):
        profile.modify(TO_ONLINE)


def test_evs_are_made_when_the_format_is_known_at_last() -> None:
    form = EvFormatProfile()
    form.modify(FormatChange(state=OFFLINE, mode=EvFormatMode.STEV))
    profile = EvProfile(LIMITS, AnyCarrier(4))
    profile.modify(EvProfileChange(state=OFFLINE, mode=EvMode.GENERATED, format=form, count=4, fields=FIELDS))
    assert len(profile.array) == 0
    form.modify(FormatChange(state=ONLINE, widths=(16, 16)))
    profile.modify(TO_ONLINE)
    assert len(profile.array) == 4


def test_going_back_to_init_forgets_everything() -> None:
    profile = online([ev(0x11)])
    profile.modify(EvProfileChange(state=OFFLINE))
    profile.modify(EvProfileChange(state=INIT))
    assert (profile.configuration.known, len(profile.array)) == (0, 0)


def test_a_profile_is_busy_while_queue_pairs_use_it() -> None:
    profile = online([ev(0x11)])
    profile.check_usable()
    profile.active_qps = 1
    with pytest.raises(BusyError, match="1 queue pairs"):
        profile.modify(EvProfileChange(state=OFFLINE))
    profile.active_qps = 0
    profile.modify(EvProfileChange(state=OFFLINE))
    with pytest.raises(InvalidArgumentError, match="OFFLINE; queue pairs can use it when ONLINE"):
        profile.check_usable()


# Attributes


def test_counts_are_capped() -> None:
    limits = EvLimits(ports=4, max_evs=16)
    assert offline(EvMode.EXPLICIT, 16, limits).configuration.count == 16
    with pytest.raises(TooBigError, match="17 EVs; the device holds 16"):
        offline(EvMode.EXPLICIT, 17, limits)
    with pytest.raises(InvalidArgumentError, match="count: 0"):
        offline(EvMode.EXPLICIT, 0, limits)


@pytest.mark.parametrize("min_active", [-1, 5])
def test_min_active_is_at_most_the_count(min_active: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"min_active: {min_active} is not in 0..4"):
        offline(EvMode.GENERATED).modify(EvProfileChange(min_active=min_active))


def test_only_good_and_assumed_bad_can_be_reported() -> None:
    with pytest.raises(InvalidArgumentError, match="event_mask: 0x6"):
        offline(EvMode.GENERATED).modify(EvProfileChange(event_mask=BAD | DENIED))


def test_more_fields_than_the_device_takes_are_too_big() -> None:
    with pytest.raises(TooBigError, match="fields: 2; the device takes 1"):
        offline(EvMode.GENERATED, limits=EvLimits(max_fields=1))


def test_more_generated_evs_than_the_fields_allow_are_too_big() -> None:
    with pytest.raises(TooBigError, match="226 EVs; the fields' bounds allow 225"):
        offline(EvMode.GENERATED, 226)


def test_entries_events_and_fields_may_change_online() -> None:
    swap = EvProfileChange(ev_op=EvOp.REPLACE_EV, entries=[EvOpEntry(ev(0x11), GOOD, ev(0x22))])
    for change in (swap, EvProfileChange(event_mask=GOOD), EvProfileChange(fields=FIELDS)):
        online([ev(0x11)]).modify(change)


def test_online_fields_must_still_fit_the_evs() -> None:
    profile = online([ev(0x11)])
    with pytest.raises(InvalidArgumentError, match=r"EV 0: .* has bit 7 set; the fields take 4 bits"):
        profile.modify(EvProfileChange(fields=FIELDS[:1]))
    assert profile.configuration.fields == FIELDS


def test_offline_fields_must_fit_the_format() -> None:
    profile = offline(EvMode.EXPLICIT)
    with pytest.raises(InvalidArgumentError):
        profile.modify(EvProfileChange(fields=FIELDS * 2))
    assert profile.configuration.fields == FIELDS


# Operations


def test_ev_op_and_fields_op_exclude_each_other() -> None:
    with pytest.raises(InvalidArgumentError, match="exclude each other"):
        offline(EvMode.EXPLICIT).modify(EvProfileChange(ev_op=EvOp.REPLACE_EV, fields=FIELDS))


def test_a_batch_stops_at_the_first_failing_entry_and_keeps_the_earlier_ones() -> None:
    profile = online([ev(0x11), ev(0x22), ev(0x33)])
    batch = [EvOpEntry(ev(0x11), DENIED), EvOpEntry(ev(0x99), DENIED), EvOpEntry(ev(0x33), DENIED)]
    with pytest.raises(NotFoundError, match=r"entries\[1\].ev: EV 99") as caught:
        profile.modify(EvProfileChange(ev_op=EvOp.MODIFY_EV_STATE, entries=batch))
    assert (caught.value.errno, caught.value.done) == (2, 1)
    assert profile.query_states([ev(0x11), ev(0x33)]) == [DENIED, GOOD]


@pytest.mark.parametrize(("all_copies", "left"), [(False, 2), (True, 0)])
def test_replace_changes_one_copy_or_all(all_copies: bool, left: int) -> None:
    profile = online([ev(0x11), ev(0x22), ev(0x11), ev(0x11)])
    entry = EvOpEntry(ev(0x11), DENIED, ev(0x44, 3), all_copies)
    profile.modify(EvProfileChange(ev_op=EvOp.REPLACE_EV, entries=[entry]))
    after = profile.array.entries()
    assert after.count((ev(0x11), GOOD)) == left
    assert after.count((ev(0x44, 3), DENIED)) == 3 - left
    assert profile.array.good == 1 + left


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (EvOpEntry(ev(0x11), GOOD), "ev_new: missing"),
        (EvOpEntry(ev(0x11), GOOD, ev(0x22, 5)), "ev_new.port: 5 is not in 1..4"),
        (EvOpEntry(ev(0x11), GOOD, UNPOPULATED), "ev_new.port: 0 is not in 1..4"),
        (EvOpEntry(ev(0x11), GOOD, EvEntry(b"\x11\x01" + bytes(30), 1)), "ev_new: .* has bit 15 set"),
        (EvOpEntry(ev(0x11), EvEntryState.UNKNOWN, ev(0x22)), "state: "),
        (EvOpEntry(ev(0x11), GOOD | DENIED, ev(0x22)), "state: "),
    ],
)
def test_a_replacement_must_be_one(entry: EvOpEntry, text: str) -> None:
    profile = online([ev(0x11)])
    with pytest.raises(InvalidArgumentError, match=rf"entries\[0\]\.{text}"):
        profile.modify(EvProfileChange(ev_op=EvOp.REPLACE_EV, entries=[entry]))
    assert profile.array.entries() == [(ev(0x11), GOOD)]


def test_generated_evs_are_denied_not_replaced() -> None:
    profile = offline(EvMode.GENERATED)
    first = profile.array.entries()[0][0]
    with pytest.raises(InvalidArgumentError, match="REPLACE_EV: the NIC makes"):
        profile.modify(EvProfileChange(ev_op=EvOp.REPLACE_EV, entries=[EvOpEntry(first, GOOD, ev(0x22))]))
    profile.modify(EvProfileChange(ev_op=EvOp.MODIFY_EV_STATE, entries=[EvOpEntry(first, DENIED)]))
    assert profile.query_states([first]) == [DENIED]


def test_an_unpopulated_entry_has_no_state_to_change() -> None:
    profile = offline(EvMode.EXPLICIT)
    with pytest.raises(InvalidArgumentError, match="has no state"):
        profile.modify(EvProfileChange(ev_op=EvOp.MODIFY_EV_STATE, entries=[EvOpEntry(UNPOPULATED, DENIED)]))


def test_a_query_for_an_unknown_ev_names_it() -> None:
    with pytest.raises(NotFoundError, match=r"entries\[1\]"):
        online([ev(0x11)]).query_states([ev(0x11), ev(0x11, port=2)])


def test_the_array_expands_as_the_fields_say() -> None:
    assert [wire[:4].hex() for _, _, wire in online([ev(0x12), ev(0xF1)]).usable()] == ["01010202", "010f0201"]


# What the transport learns


def test_bad_paths_are_reported_as_the_mask_asks() -> None:
    profile = online([ev(0x11), ev(0x22)])
    assert profile.learn(ev(0x11), BAD) is True
    assert profile.learn(ev(0x11), BAD) is False  # nothing new
    assert profile.learn(ev(0x11), GOOD) is False  # not asked for
    assert profile.query_states([ev(0x11)]) == [GOOD]


def test_min_active_evs_stay_good_however_bad_they_look() -> None:
    profile = online([ev(0x11), ev(0x22)])
    profile.learn(ev(0x11), BAD)
    assert profile.learn(ev(0x22), BAD) is False
    assert profile.query_states([ev(0x22)]) == [GOOD]


def test_a_denied_ev_stays_denied_whatever_is_learned() -> None:
    profile = online([ev(0x11)])
    profile.modify(EvProfileChange(ev_op=EvOp.MODIFY_EV_STATE, entries=[EvOpEntry(ev(0x11), DENIED)]))
    assert profile.learn(ev(0x11), GOOD) is False
    assert profile.query_states([ev(0x11)]) == [DENIED]
