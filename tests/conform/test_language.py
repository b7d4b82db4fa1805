"""The language of tests: what it reads, and what it says about mistakes."""

from __future__ import annotations

import pytest

from openmrc.conform.catalogue import chosen, clauses, shipped_tests
from openmrc.conform.language import Level, PartOfDevice, ScriptError, each_packet, parse_tests
from openmrc.errors import ConfigError

HEAD = "test 1.2/1 wire-order must responder\n    What it shows.\n"


def test_a_test_has_head_description_options_and_steps() -> None:
    (test,) = parse_tests(
        f"# a comment\n{HEAD}    device mtu=512 writable=0\n+5ms > WRITE_ONLY psn=0 a=1\n< SACK\n", "a"
    )
    assert (test.id, test.clause, test.level, test.part) == ("1.2/1", "wire-order", Level.MUST, PartOfDevice.RESPONDER)
    assert test.about == "What it shows."
    assert (test.wanted.mtu, test.wanted.writable) == (512, False)
    assert [step.kind for step in test.steps] == [">", "<"]


def test_one_time_is_a_pause_before_an_injection_and_a_limit_of_an_expectation() -> None:
    (test,) = parse_tests(f"{HEAD}+5ms > PROBE\n+5ms < SACK\n+5ms..20ms < NACK\n+1ms ! SACK\n< SACK\n", "a")
    times = [(step.earliest, step.latest) for step in test.steps]
    ms = 1_000_000
    assert times == [(5 * ms, None), (0, 5 * ms), (5 * ms, 20 * ms), (0, ms), (0, None)]


def test_ranges_are_one_packet_each_up_or_down() -> None:
    (test,) = parse_tests(f"{HEAD}> WRITE_ONLY psn=2..0 rqmsn=5..7 length=64\n", "a")
    packets = [{name: value.numbers[0] for name, value in each.items()} for each in each_packet(test.steps[0])]
    assert [(each["psn"], each["rqmsn"]) for each in packets] == [(2, 5), (1, 6), (0, 7)]
    assert {each["length"] for each in packets} == {64}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("> PROBE\n", "a:1: '> PROBE' before the first test"),
        ("test 1 wire-order must\n", "a:1: expected `test ID CLAUSE LEVEL PART`"),
        (f"{HEAD}    device mut=3\n> PROBE\n", "a:3: 'mut=3' is not an option of a device"),
        (f"{HEAD}> PROB\n", "a:3: 'PROB' is not one of"),
        (f"{HEAD}+5 > PROBE\n", "a:3: '+5' lacks a unit"),
        (f"{HEAD}+x > PROBE\n", "a:3: '+x' is not a time"),
        (f"{HEAD}> PROBE id\n", "a:3: 'id' is not a condition"),
        (f"{HEAD}> PROBE id=?\n", "a:3: '?' is not a value"),
        (f"{HEAD}: melt WRITE\n", "a:3: 'melt' is not one of"),
        (f"{HEAD}: drop WRITES\n", "a:3: 'WRITES' is not a packet"),
        ("test 1/1 wire-order must responder\n", "a:1: test 1/1 lacks a description or steps"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, said: str) -> None:
    with pytest.raises(ScriptError) as error:
        parse_tests(text, "a")
    assert said in str(error.value)


def test_the_tests_that_ship_are_unique_and_about_clauses() -> None:
    tests = shipped_tests()
    assert len({test.id for test in tests}) == len(tests)
    assert {test.clause for test in tests} <= set(clauses())


def test_a_choice_that_of_our_own_is_never_a_must() -> None:
    for test in shipped_tests():
        assert clauses()[test.clause].status != "ours" or test.level != Level.MUST, test.id


def test_tests_are_chosen_by_id_section_clause_part_or_level() -> None:
    tests = shipped_tests()
    assert [test.id for test in chosen(tests, ["6.3.1/1"])] == ["6.3.1/1"]
    assert {test.id.split("/")[0] for test in chosen(tests, ["6.3.1"])} == {"6.3.1"}
    assert {test.clause for test in chosen(tests, ["wire-*"])} == {
        test.clause for test in tests if test.clause.startswith("wire-")
    }
    with pytest.raises(ConfigError, match="names no test"):
        chosen(tests, ["7.9.9"])
