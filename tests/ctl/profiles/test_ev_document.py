import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.ctl.profiles.ev_document import ev_from_hex, parse
from openmrc.errors import ConfigError

GOOD = """\
format: {mode: stev, widths: [16, 16]}
profile:
  mode: explicit
  fields:
    - {width: 16, mask: 0xffff}
    - {width: 16, init_val: 0x0200, min_val: 0, max_val: 15, mask: 0xf}
  evs: [EVS]
"""


def listed(evs: str) -> list[str]:
    evs_read = parse(GOOD.replace("EVS", evs), "p.yaml").evs
    assert evs_read is not None
    return [ev.hex() for ev in evs_read]


@pytest.mark.parametrize(
    ("written", "digits"),
    [
        ("0x12345", "12345"),
        ("'0x12345'", "12345"),
        ("0X12345", "12345"),
        ("abcde", "abcde"),
        ("ABCDE", "abcde"),
        ("12345", "12345"),  # decimal digits are hexadecimal digits too
        ("0x00012", "00012"),  # leading zeros count
        ("00012", "00012"),
        ("0777", "0777"),  # an octal number to YAML
        ("0b01", "0b01"),  # a binary one
        ("12e4", "12e4"),
        ("0x1_2345", "12345"),
        ("1", "1"),
    ],
)
def test_digits_of_an_ev_are_its_leading_ones_however_yaml_would_read_them(written: str, digits: str) -> None:
    assert listed(written) == [digits.ljust(64, "0")]


def test_numbers_of_fields_are_numbers_and_may_be_text() -> None:
    texts = GOOD.replace("0x0200", "'0x0200'").replace("mask: 0xf}", "mask: '15'}")
    assert parse(texts.replace("EVS", ""), "p").expansion == parse(GOOD.replace("EVS", ""), "p").expansion


def test_json_is_read_too() -> None:
    text = '{"format": {"mode": "udp", "widths": [16]}, "profile": {"mode": "generated", "fields": [{"width": 16}]}}'
    document = parse(text, "p.json")
    assert (document.generated, document.evs) == (True, None)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "mode: stev",
            "mode: ecmp",
            r"p.yaml:1: Invalid enum value 'ecmp' - at `\$.format.mode`; Known are srv6, stev, udp",
        ),
        ("[16, 16]", "[16, 17]", ":1: format.widths: they sum to 33 bits; stev carries at most 32"),
        ("[16, 16]", "[16, 0]", r":1: format.widths\[1\]: 0 is not in 1..255"),
        ("[16, 16]", "[16]", r":5: profile.fields: 2 of them; the format has 1"),
        ("[16, 16]", "16", r":1: Expected `array`, got `int` 16 - at `\$.format.widths`; expected a list"),
        ("mode: explicit", "mode: auto", r":3: Invalid enum value 'auto' - at `\$.profile.mode`; Known are explicit"),
        ("width: 16, mask", "width: 33, mask", r":5: profile.fields\[0\].width: 33 is not in 1..32"),
        ("width: 16, init", "width: x, init", r":6: Expected `int`, got `str` 'x' - at `\$.profile.fields\[1\].width`"),
        ("mask: 0xffff", "mask: 0x1ffff", r":5: profile.fields\[0\].mask: 0x1ffff does not fit; .* 0..0xffff is"),
        ("mask: 0xffff", "mask: -1", r":5: profile.fields\[0\].mask: -0x1 does not fit"),
        ("mask: 0xffff", "mask: many", r"profile.fields\[0\].mask: 'many' is not a number"),
        ("max_val: 15", "max_val: 16", r":6: profile.fields\[1\].max_val: 0x10 does not fit; the mask has 4 bits"),
        ("min_val: 0", "min_val: 16", r":6: profile.fields\[1\].min_val: 0x10 does not fit"),
        ("init_val: 0x0200", "init_val: 0x10000", r":6: profile.fields\[1\].init_val: 0x10000 does not fit"),
        ("init_val", "initial", r":6: Object contains unknown field `initial` - at `.*; did you mean init_val"),
        ("EVS", "12345, 123456", r":7: profile.evs\[1\]: .* has bit 21 set; the fields take 20 bits"),
        ("EVS", "green", r":7: profile.evs\[0\]: 'green' is not hexadecimal"),
        ("EVS", "''", r":7: profile.evs\[0\]: '' is not hexadecimal"),
        ("EVS", "_", r":7: profile.evs\[0\]: '_' has 0 digits"),
        ("EVS", "0" * 65, r":7: profile.evs\[0\]: .* has 65 digits; allowed are 1..64"),
        ("EVS", "[1]", r":7: Expected `int \| str`, got `array` - at `\$.profile.evs\[0\]`"),
        ("  evs: [EVS]", "  evs: [", ":8: not YAML"),
        ("  evs: [EVS]", "other: 1", "unknown field `other`"),
        ("{width: 16, mask: 0xffff}", "{width: 8, mask: 0xff, width: 16}", "p.yaml:5: key 'width' is given twice"),
        ("  mode: explicit", "  mode: explicit\n  mode: generated", "p.yaml:4: key 'mode' is given twice"),
        ("format:", "fmt:", "missing required field `format`|unknown field `fmt`"),
        ("profile:", "\tprofile:", ":2: not YAML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse(GOOD.replace(old, new), "p.yaml")


@pytest.mark.parametrize(
    "text",
    ["", "# nothing", "3", "[]", "--- 1\n--- 2", "a: &a [*a]", "\x00", "[" * 1_000_000, "- " * 100_000, "? " * 100_000],
)
def test_other_things_than_a_profile_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^p.yaml:"):
        parse(text, "p.yaml")


@given(st.text())
def test_any_text_is_a_profile_or_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text, "p.yaml")


@given(st.binary(min_size=32, max_size=32))
def test_an_ev_written_whole_reads_back(ev: bytes) -> None:
    assert ev_from_hex(ev.hex()) == ev_from_hex("0x" + ev.hex().upper()) == ev
