"""The language of tests: what it reads, and what it says about mistakes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from openmrc.conform.catalogue import chosen, clauses, shipped_tests
from openmrc.conform.devices.contract import Wanted
from openmrc.conform.language import (
    ACTIONS,
    COMMANDS,
    EVENTS,
    PACKETS,
    REPORTS,
    FieldForm,
    Level,
    PartOfDevice,
    ScriptError,
    ScriptStep,
    each_packet,
    forms,
)
from openmrc.conform.parsing import parse_tests
from openmrc.conform.results import TestVerdict
from openmrc.conform.suite import run_virtually
from openmrc.errors import ConfigError
from openmrc.wire.codes import Opcode

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
        ("test 1 wire-order must\n", "a:1: expected `test ID CLAUSE must|should|info responder|requester|both`"),
        (f"{HEAD}    device mut=3\n> PROBE\n", "a:3: 'mut=3' is not an option of a device"),
        (f"{HEAD}> PROB\n", "a:3: 'PROB' is not one of"),
        (f"{HEAD}+5 > PROBE\n", "a:3: '+5' lacks a unit"),
        (f"{HEAD}+x > PROBE\n", "a:3: '+x' is not a time"),
        (f"{HEAD}> PROBE id\n", "a:3: 'id' is not a condition"),
        (f"{HEAD}> PROBE id=?\n", "a:3: '?' is not a value"),
        (f"{HEAD}: melt WRITE\n", "a:3: 'melt' is not one of"),
        (f"{HEAD}: drop WRITES\n", "a:3: 'WRITES' is not a packet"),
        ("test 1/1 wire-order must responder\n", "a:1: test 1/1 lacks a description or steps"),
        (f"{HEAD}    device mtu=1000\n> PROBE\n", "a:3: mtu is 1000, not one of (256, 512, 1024, 2048, 4096)"),
        (f"{HEAD}    device evs=0\n> PROBE\n", "a:3: evs is 0, not in 1..64"),
        (f"{HEAD}    device writable=2\n> PROBE\n", "a:3: writable is 2, not 0 or 1"),
        (f"{HEAD}    device mtu=256 mtu=512\n> PROBE\n", "a:3: 'mtu=512' is not an option of a device, once each of"),
        (f"{HEAD}+5ms..20 < SACK\n", "a:3: '+5ms..20' "),
        (f"{HEAD}+20ms..5ms < SACK\n", "a:3: '+20ms..5ms' ends before it begins"),
        (f"{HEAD}+2ms..5ms > PROBE\n", "a:3: a line with > PROBE takes no such time as +2ms..5ms"),
        (f"{HEAD}+1ms ! memory\n", "a:3: 'memory' is not one of"),
        (f"{HEAD}> ANY psn=1\n", "a:3: 'ANY' is not one of"),
        (f"{HEAD}: drop WRITE\n", "a:3: only tests of two devices (`both`) have relay rules"),
        (f"{HEAD}> WRITE_ONLY psn=0..2 length=1..2\n", "a:3: its ranges have [2, 3] numbers"),
        (f"{HEAD}> SACK acked=4 cack_psn=$first\n", "a:3: $first has no value yet: context, device, key, qpn have one"),
        (f"{HEAD}* port up=1\n", "a:3: port lacks plane=0..1"),
        (f"{HEAD}? WRITE psn=0\n", "a:3: WRITE lacks count=0..4294967295"),
        (f"{HEAD}+1ms ? WRITE count=0\n", "a:3: a line with ? WRITE takes no such time as +1ms"),
        (f"{HEAD}? WRITE psn=$first count=0\n", "a:3: $first has no value yet"),
        (f"{HEAD}< SACK count=1\n", "a:3: SACK has no 'count'"),
        (f"{HEAD}* port plane=2 up=1\n", "a:3: plane=2 is not possible: plane takes 0..1"),
        (f"{HEAD}* memory side=1\n", "a:3: side=1 is not possible: side takes 0..0"),
        (f"{HEAD}* profile mode=some\n", "a:3: mode=some is not possible: mode takes auto or explicit or generated"),
        (f"{HEAD}* profile mode=generated count=4 denied=4\n", "a:3: denied=4 names an EV that is not there"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, said: str) -> None:
    with pytest.raises(ScriptError) as error:
        parse_tests(text, "a")
    assert said in str(error.value)


LINES = {
    ">": ("WRITE", *(opcode.name for opcode in Opcode)),
    "<": PACKETS,
    "!": EVENTS,
    "*": (*COMMANDS, *REPORTS),
    ":": ACTIONS,
}
WHOLE = {"port": {"plane": "0", "up": "1"}, "profile": {"mode": "auto"}, "delay": {"us": "1"}}


def lines() -> Iterator[tuple[str, str, dict[str, FieldForm]]]:
    """Yield what every line can be: how it begins, what it is about, and its fields."""
    for kind, subjects in LINES.items():
        part = PartOfDevice.BOTH if kind == ":" else PartOfDevice.RESPONDER
        for subject in subjects:
            fields = forms(ScriptStep(3, "", kind, subject), Wanted(), part)
            yield kind, subject, {name: form for name, form in fields.items() if "." not in name}


def written(kind: str, subject: str, *fields: str) -> str:
    return HEAD.replace("responder", "both" if kind == ":" else "responder") + f"{kind} {subject} {' '.join(fields)}\n"


def mistakes(kind: str, subject: str, fields: dict[str, FieldForm]) -> Iterator[list[str]]:
    """Yield fields that are left out, wrong, out of range, set twice, or not set but compared."""
    whole = WHOLE.get(subject, {})
    yield ["none=1"]
    for left_out in whole:
        yield [f"{name}={value}" for name, value in whole.items() if name != left_out]
    sets = kind == ">" or subject in (*COMMANDS, "memory")
    for name in fields:
        rest = [f"{other}={value}" for other, value in whole.items() if other != name]
        unbound = ["$nobody"] if kind == ">" else []
        for value in ("word", "1,", "1..x", "1.5", f"-1{0:030}", f"1{0:030}", *unbound):
            yield [*rest, f"{name}={value}"]
        if sets:
            yield [*rest, f"{name}<1"]
        if sets and name != "field":
            yield [*rest, f"{name}=1", f"{name}=1"]


def test_every_mistake_in_every_field_of_every_line_is_named_with_its_place() -> None:
    for kind, subject, fields in lines():
        parse_tests(written(kind, subject, *(f"{name}={value}" for name, value in WHOLE.get(subject, {}).items())), "a")
        for mistake in mistakes(kind, subject, fields):
            with pytest.raises(ScriptError, match=r"^a:3: .") as error:
                parse_tests(written(kind, subject, *mistake), "a")
            name, _, value = "".join(mistake[-1:]).partition("=")
            assert "lacks" in str(error.value) or name in str(error.value) or value in str(error.value), mistake


def test_what_no_line_forbids_ends_in_a_verdict_or_is_named_as_the_test_runs() -> None:
    ran = 0
    for kind, subject, fields in lines():
        if kind != "*" and subject != "SACK":
            continue
        for name, form in fields.items():
            rest = [f"{other}={value}" for other, value in WHOLE.get(subject, {}).items() if other != name]
            if (kind, subject, name) in (("*", "write", "length"), ("*", "write", "count"), ("*", "profile", "denied")):
                continue  # the first two last, and no profile without EVs has one to deny
            for value in (*((form.numbers.stop - 1,) if form.numbers.stop else ()), *list(form.names())[:1]):
                (test,) = parse_tests(written(kind, subject, *rest, f"{name}={value}"), "a")
                with contextlib.suppress(ScriptError):  # the only way out besides a verdict
                    assert run_virtually(test).verdict in TestVerdict
                ran += 1
    assert ran > 50


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("> SACK acked=4 cack_psn=4", "acked=4 is not within the 64 PSNs behind cack_psn=4"),
        ("> WRITE_ONLY r_key=$qpn+0xFFFFFFFF", "reth.r_key is .*: allowed is 0 to 4294967295"),
        ("= windows", "'windows' is not a property: window-shrinks, icrc"),
    ],
)
def test_what_does_not_fit_together_is_named_as_the_test_runs(line: str, said: str) -> None:
    (test,) = parse_tests(f"{HEAD}{line}\n", "a")
    with pytest.raises(ScriptError, match=f"^a:3: {said}"):
        run_virtually(test)


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
