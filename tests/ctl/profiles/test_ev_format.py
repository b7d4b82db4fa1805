from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.ctl.profiles.ev_format import EvBitWidths, EvExpansion, EvField, EvFormatMode
from openmrc.errors import CallError, InvalidArgumentError, TooBigError
from tests.naive import ev_expansion as naive

STEV, SRV6, UDP = EvFormatMode.STEV, EvFormatMode.SRV6, EvFormatMode.UDP


@st.composite
def fields(draw: st.DrawFn, width: int) -> EvField:
    own = draw(st.integers(1, min(width, 32)))
    top = (1 << own) - 1
    mask = draw(st.integers(0, top) | st.just(top))
    number = st.integers(0, (1 << mask.bit_count()) - 1)
    least, most = sorted((draw(number), draw(number)))
    return EvField(own, draw(st.integers(0, top)), least, most, mask)


@st.composite
def expansions(draw: st.DrawFn) -> EvExpansion:
    mode, cap = draw(st.sampled_from([(STEV, 32), (UDP, 16), (SRV6, 256)]))
    widths: list[int] = []
    while sum(widths) < cap and len(widths) < 16:
        widths.append(draw(st.integers(1, min(48, cap - sum(widths)))))
    used = draw(st.integers(1, len(widths)))
    return EvExpansion(EvBitWidths(mode, tuple(widths)), tuple(draw(fields(width)) for width in widths[:used]))


@st.composite
def expansions_and_evs(draw: st.DrawFn) -> tuple[EvExpansion, bytes]:
    expansion = draw(expansions())
    leading = draw(st.integers(0, (1 << expansion.ev_bits) - 1))
    return expansion, (leading << 256 - expansion.ev_bits).to_bytes(32, "big")


@given(expansions_and_evs())
def test_expansion_is_what_reading_bit_by_bit_gives(case: tuple[EvExpansion, bytes]) -> None:
    expansion, ev = case
    plain = [(field.width, field.init_val, field.mask) for field in expansion.fields]
    assert expansion.expand(ev) == naive.expand(expansion.format.widths, plain, ev)


@given(expansions_and_evs())
def test_packing_undoes_taking_an_ev_apart(case: tuple[EvExpansion, bytes]) -> None:
    expansion, ev = case
    assert expansion.packed(expansion.numbers(ev)) == ev


@given(expansions_and_evs(), st.data())
def test_a_bit_behind_those_used_is_refused(case: tuple[EvExpansion, bytes], data: st.DataObject) -> None:
    expansion, ev = case
    if expansion.ev_bits == 256:
        return
    bit = data.draw(st.integers(expansion.ev_bits, 255))
    wrong = (int.from_bytes(ev, "big") | 1 << 255 - bit).to_bytes(32, "big")
    with pytest.raises(InvalidArgumentError, match=f"has bit {bit} set; the fields take {expansion.ev_bits} bits"):
        expansion.expand(wrong)


def field_faults(field: EvField) -> dict[str, EvField]:
    top = (1 << field.width) - 1
    return {
        "init_val": replace(field, init_val=top + 1),
        "mask": replace(field, mask=field.mask | top + 1),
        "max_val": replace(field, max_val=1 << field.ev_bits),
        "min_val": replace(field, min_val=field.max_val + 1),
        "width": replace(field, width=33),
    }


@given(expansions(), st.data())
def test_each_broken_restriction_of_a_field_is_refused_by_name(expansion: EvExpansion, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(expansion.fields) - 1))
    for name, broken in field_faults(expansion.fields[index]).items():
        wrong = (*expansion.fields[:index], broken, *expansion.fields[index + 1 :])
        with pytest.raises(InvalidArgumentError, match=rf"^fields\[{index}\]\.{name}: ") as caught:
            EvExpansion(expansion.format, wrong)
        assert caught.value.errno == 22


def test_more_fields_than_the_format_has_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="fields: 2 of them; the format has 1"):
        EvExpansion(EvBitWidths(STEV, (32,)), (EvField(8), EvField(8)))


def test_no_field_at_all_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="fields: empty"):
        EvExpansion(EvBitWidths(STEV, (32,)), ())


def test_fields_wider_than_the_whole_format_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="sum to 32 bits; the format has 24"):
        EvExpansion(EvBitWidths(STEV, (16, 8)), (EvField(16), EvField(16)))


def test_a_field_wider_than_its_own_part_is_refused_even_when_the_sum_fits() -> None:
    with pytest.raises(InvalidArgumentError, match=r"fields\[0\].width: 12 bits; the format's field 0 has 8"):
        EvExpansion(EvBitWidths(STEV, (8, 24)), (EvField(12), EvField(4)))


@pytest.mark.parametrize(("mode", "cap"), [(STEV, 32), (UDP, 16), (SRV6, 256)])
def test_a_format_may_fill_its_mode_and_not_a_bit_more(mode: EvFormatMode, cap: int) -> None:
    assert EvBitWidths(mode, (8, cap - 8)).bits == cap
    with pytest.raises(TooBigError, match=f"carries at most {cap}") as caught:
        EvBitWidths(mode, (8, cap - 7))
    assert caught.value.errno == 7


@pytest.mark.parametrize("widths", [(), (0,), (-1, 8), (8, 256)])
def test_widths_that_are_none_are_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="widths"):
        EvBitWidths(SRV6, widths)


def test_a_format_has_one_mode() -> None:
    with pytest.raises(InvalidArgumentError, match="mode"):
        EvBitWidths(STEV | UDP, (8,))


def test_only_a_wide_srv6_format_uses_an_srh() -> None:
    assert not EvBitWidths(SRV6, (128,)).has_srh
    assert EvBitWidths(SRV6, (128, 1)).has_srh
    assert not EvBitWidths(STEV, (32,)).has_srh


def test_a_full_mask_of_32_bits_takes_the_ev_as_it_is() -> None:
    expansion = EvExpansion(EvBitWidths(STEV, (32,)), (EvField(32, init_val=0xFFFFFFFF, mask=0xFFFFFFFF),))
    assert expansion.expand(bytes([0x12, 0x34, 0x56, 0x78]) + bytes(28))[:4].hex() == "12345678"


@pytest.mark.parametrize("size", [0, 31, 33])
def test_an_ev_has_32_bytes(size: int) -> None:
    expansion = EvExpansion(EvBitWidths(STEV, (32,)), (EvField(32, mask=0xFFFFFFFF),))
    with pytest.raises(CallError, match=f"{size} bytes; an EV has 32"):
        expansion.expand(bytes(size))


@given(expansions(), st.data())
def test_what_expands_is_found_again_from_its_bits_on_the_wire(expansion: EvExpansion, data: st.DataObject) -> None:
    bounds = [field.bounds for field in expansion.fields]
    ev = expansion.packed([data.draw(st.integers(least, most)) for least, most in bounds])
    assert expansion.contracted(expansion.expand(ev)) == ev
