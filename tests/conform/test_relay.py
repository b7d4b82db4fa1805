"""The relay: which packets a rule picks, and what becomes of them; its addresses and ICRCs."""

from __future__ import annotations

import pytest

from openmrc.conform.language import ScriptError
from openmrc.conform.parsing import parse_tests
from openmrc.conform.results import TestResult, TestVerdict
from openmrc.conform.suite import run_virtually

HEAD = "test 1/1 retransmission must both\n    What it shows.\n    device planes=1\n"


def run(steps: str) -> TestResult:
    (test,) = parse_tests(HEAD + steps, "a")
    return run_virtually(test)


def actions(result: TestResult, name: str) -> list[str]:
    return [each.action for each in result.entries if each.packet is not None and each.packet.name.startswith(name)]


@pytest.mark.parametrize(
    ("rule", "picked"),
    [
        ("drop WRITE psn=1 nth=1", [1]),
        ("mark WRITE nth=2..3", [1, 2]),
        ("mark WRITE every=2", [1, 3]),
        ("duplicate WRITE_LAST", [3]),
        ("trim WRITE nth=4", [3]),
    ],
)
def test_a_rule_picks_packets_by_kind_number_and_count(rule: str, picked: list[int]) -> None:
    result = run(f": {rule}\n* write length=4096\n+5s * completes\n")
    assert result.verdict == TestVerdict.PASS
    first_four = actions(result, "WRITE")[:4]
    assert [at for at, action in enumerate(first_four) if action != "pass"] == picked


def test_what_is_held_back_leaves_after_others_and_what_is_delayed_after_a_time() -> None:
    result = run(": hold WRITE psn=0 n=2\n* write length=4096\n< SACK acked=1\n")
    assert result.verdict == TestVerdict.PASS
    result = run(": delay WRITE us=3000\n* write length=64\n+2ms ! SACK cack_psn=0\n+5ms < SACK cack_psn=0\n")
    assert result.verdict == TestVerdict.PASS


def test_what_is_corrupted_does_not_arrive_and_rules_are_lifted() -> None:
    result = run(
        ": corrupt WRITE\n* write length=64\n+1ms ! SACK cack_psn=0\n: nothing\n+1s * completes status=SUCCESS\n"
    )
    assert result.verdict == TestVerdict.PASS


def test_a_variable_of_a_rule_is_bound_by_the_first_packet_it_picks() -> None:
    result = run(": drop WRITE nth=1 ev=$first\n* write length=64\n< WRITE ev!=$first rtx=1\n+1s * completes\n")
    assert result.verdict == TestVerdict.PASS
    assert result.observed["first"] >= 0xC000


def test_a_rule_needs_two_devices() -> None:
    with pytest.raises(ScriptError, match=r"^a:4: only tests of two devices"):
        parse_tests(HEAD.replace("both", "responder") + ": drop WRITE\n", "a")
