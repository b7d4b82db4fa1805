import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InvalidArgumentError, TooBigError
from openmrc.profiles.ev_array import EvEntry, EvEntryState, EvOp, EvOpEntry
from openmrc.profiles.ev_configuration import EvLimits, EvMode, EvProfileChange
from openmrc.profiles.ev_format import EvField, EvFormatMode
from openmrc.profiles.ev_format_profile import EvFormatProfile, FormatChange
from openmrc.profiles.ev_profile import EvProfile
from openmrc.profiles.ev_spread import NOT_LISTED, auto_values, spread
from openmrc.profiles.profile_states import ProfileState
from openmrc.wire.entropy import EvPlacement, entropy, flow_label, source_port

STEV, SRV6, UDP = EvFormatMode.STEV, EvFormatMode.SRV6, EvFormatMode.UDP
DENIED = EvEntryState.DENIED


def profile(mode: EvFormatMode, widths: tuple[int, ...], fields: tuple[EvField, ...], count: int) -> EvProfile:
    form = EvFormatProfile()
    form.modify(FormatChange(state=ProfileState.ONLINE, mode=mode, widths=widths))
    made = EvProfile(EvLimits(ports=4), seed=3)
    made.modify(
        EvProfileChange(state=ProfileState.OFFLINE, mode=EvMode.GENERATED, format=form, count=count, fields=fields)
    )
    return made


def stev_profile(count: int = 64) -> EvProfile:
    return profile(STEV, (16, 16), (EvField(16, 0x100, mask=0xFF), EvField(16, 0x200, mask=0xFF)), count)


def explicit(evs: list[tuple[int, int]]) -> EvProfile:
    form = EvFormatProfile()
    form.modify(FormatChange(state=ProfileState.ONLINE, mode=UDP, widths=(16,)))
    made = EvProfile(EvLimits(ports=4))
    fields = (EvField(16, mask=0xFFFF),)
    made.modify(
        EvProfileChange(state=ProfileState.OFFLINE, mode=EvMode.EXPLICIT, format=form, count=len(evs), fields=fields)
    )
    entries = [EvEntry(value.to_bytes(2, "big") + bytes(30), port) for value, port in evs]
    batch = [EvOpEntry(EvEntry.unpopulated(), EvEntryState.GOOD, entry) for entry in entries]
    made.modify(EvProfileChange(ev_op=EvOp.REPLACE_EV, entries=batch))
    return made


@settings(deadline=None)
@given(st.sampled_from([STEV, SRV6, UDP]), st.integers(1, 16), st.integers(1, 300), st.integers(0, 64), st.integers())
def test_every_plane_gets_as_many_and_no_value_comes_twice(
    mode: EvFormatMode, ports: int, active: int, backup: int, seed: int
) -> None:
    dealt = spread(mode, ports, active, backup, seed)
    assert dealt.active == max(1, active // ports)
    assert dealt.backup == backup // ports
    assert len(np.unique(dealt.values)) == dealt.values.size
    assert (dealt.entries == NOT_LISTED).all()


def test_udp_values_are_source_ports_from_0xc000_upward() -> None:
    values = spread(UDP, 4, 256, 64, seed=1).values
    assert values.min() >= 0xC000
    assert values.max() <= 0xFFFF


def test_srv6_values_are_places_in_a_table_whose_planes_take_turns() -> None:
    values = spread(SRV6, 4, 16, 8, seed=1, paths=100).values
    assert (values % 4 == [[0], [1], [2], [3]]).all()
    assert values.max() < 400
    assert [source_port(EvPlacement.SRV6, int(value)) for value in values[1]] == [0xC000 | value for value in values[1]]


def test_a_plane_with_fewer_paths_than_wanted_gives_all_it_has() -> None:
    dealt = spread(SRV6, 2, 32, 8, seed=1, paths=6)
    assert (dealt.active, dealt.backup) == (6, 0)
    assert sorted(dealt.values[0]) == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("mode", "placement"),
    [(UDP, EvPlacement.UDP), (STEV, EvPlacement.STEV), (STEV, EvPlacement.STEV_LABEL_FIRST), (SRV6, EvPlacement.SRV6)],
)
def test_a_value_that_was_placed_in_headers_is_reflected_as_itself(mode: EvFormatMode, placement: EvPlacement) -> None:
    for value in spread(mode, 4, 64, 16, seed=7).values.ravel().tolist():
        assert entropy(placement, source_port(placement, value), flow_label(placement, value)) == value


@pytest.mark.parametrize("mode", [STEV, SRV6, UDP])
def test_many_queue_pairs_at_once_get_what_each_gets_alone(mode: EvFormatMode) -> None:
    together = auto_values(mode, 4, 10, np.arange(50), paths=32)
    for seed in range(50):
        assert (together[seed] == spread(mode, 4, 32, 8, seed, paths=32).values).all()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 16, 100, 1000])
def test_each_path_is_chosen_about_as_often(limit: int) -> None:
    values = auto_values(SRV6, 1, max(1, limit // 2), np.arange(4000), paths=limit).ravel()
    counts = np.bincount(values, minlength=limit)
    assert abs(counts - counts.mean()).max() < 6 * counts.mean() ** 0.5 + 1


def test_queue_pairs_do_not_share_their_choice() -> None:
    chosen = {tuple(sorted(row)) for row in auto_values(UDP, 1, 4, np.arange(1000)).reshape(1000, 4).tolist()}
    assert len(chosen) == 1000


def test_more_than_a_mode_can_tell_apart_is_too_big() -> None:
    with pytest.raises(TooBigError, match="16400 EVs a queue pair; UDP has 16384"):
        auto_values(UDP, 16, 1025, [1])
    with pytest.raises(TooBigError, match="paths: 5000 on each of 4"):
        spread(SRV6, 4, 16, 0, seed=1, paths=5000)


@pytest.mark.parametrize(("ports", "active", "backup"), [(0, 1, 0), (1, 0, 0), (1, 1, -1)])
def test_nonsense_is_refused(ports: int, active: int, backup: int) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1, 1 and 0"):
        spread(UDP, ports, active, backup, seed=1)


def test_a_profile_gives_the_first_bytes_of_what_its_evs_expand_to() -> None:
    made = stev_profile()
    dealt = spread(made, 4, 32, 8, seed=1)
    wires = made.expanded()
    for port in range(4):
        for value, entry in zip(dealt.values[port].tolist(), dealt.entries[port].tolist(), strict=True):
            assert value == int.from_bytes(wires[entry][:4], "big")
            assert made.query_array()[entry][0].port == port + 1


def test_a_srv6_profile_gives_positions_in_its_array() -> None:
    fields = (EvField(32, 0xFCBBBBBB), EvField(16, 0x100, mask=0xFF))
    dealt = spread(profile(SRV6, (32, 16, 16), fields, 64), 4, 32, 8, seed=1)
    assert (dealt.values == dealt.entries).all()


def test_two_seeds_take_different_subsets_of_a_profile() -> None:
    made = stev_profile()
    first, again, second = (spread(made, 4, 32, 0, seed).values for seed in (1, 1, 2))
    assert (first == again).all()
    assert {*first.ravel().tolist()} != {*second.ravel().tolist()}


def test_denied_evs_are_not_dealt() -> None:
    made = stev_profile(16)
    denied = made.query_array()[0][0]
    made.modify(EvProfileChange(ev_op=EvOp.MODIFY_EV_STATE, entries=[EvOpEntry(denied, DENIED)]))
    dealt = spread(made, 4, 16, 0, seed=1)
    assert 0 not in dealt.entries
    assert dealt.values.shape == (4, 3)  # every plane shrinks with the one that lost an EV


def test_a_value_two_planes_list_is_given_to_one_of_them() -> None:
    dealt = spread(explicit([(value, port) for port in (1, 2) for value in range(0xC000, 0xC008)]), 2, 16, 0, seed=1)
    assert dealt.values.shape == (2, 4)
    assert len(np.unique(dealt.values)) == 8


def test_a_plane_without_evs_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="no usable EV on port 2"):
        spread(explicit([(0xC000, 1), (0xC001, 1)]), 2, 2, 0, seed=1)


def test_an_auto_profile_uses_source_ports() -> None:
    made = EvProfile()
    made.modify(EvProfileChange(state=ProfileState.OFFLINE, mode=EvMode.AUTO))
    assert (spread(made, 4, 16, 4, seed=1).values == spread(UDP, 4, 16, 4, seed=1).values).all()
