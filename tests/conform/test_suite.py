"""The tests that ship, against our engine in virtual time; verdicts of devices that do otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.devices.contract import Description, DeviceSilentError, Wanted
from openmrc.conform.devices.virtual import VirtualDevice
from openmrc.conform.execution import TestExecution
from openmrc.conform.explain import entry_line, explanation
from openmrc.conform.language import Level, ScriptTest
from openmrc.conform.media.medium import VirtualMedium
from openmrc.conform.parsing import parse_tests
from openmrc.conform.reports import comment_on, write_capture
from openmrc.conform.results import TestFailure, TestResult, TestVerdict, run_until_clear
from openmrc.conform.suite import run_virtually
from openmrc.wire.capture import dissect, find_datagram
from openmrc.wire.pcapng import read_frames

HEAD = "test 1.2/1 wire-order {} responder\n    What it shows.\n"


SLOW = {"table-8-1/1", "9.3.2/3", "9.3.2/1"}  # thousands of packets each, seconds when interpreted
TESTS = [
    pytest.param(test, id=test.id, marks=[pytest.mark.exhaustive] if test.id in SLOW else [])
    for test in shipped_tests()
]


@pytest.mark.parametrize("test", TESTS)
def test_our_engine_does_what_the_tests_expect(test: ScriptTest) -> None:
    result = run_virtually(test)
    expected = TestVerdict.INFO if test.level == Level.INFO else TestVerdict.PASS
    assert (result.verdict, result.failure) == (expected, None), "\n".join(explanation(result))


def run(steps: str, level: str = "must") -> TestResult:
    (test,) = parse_tests(HEAD.format(level) + steps, "a")
    return run_virtually(test)


def test_what_does_not_come_fails_with_the_packet_that_came_closest() -> None:
    result = run("> WRITE_ONLY psn=0 a=1\n< SACK cack_psn=1\n")
    assert result.verdict == TestVerdict.FAIL
    assert result.failure is not None
    assert result.failure.reason == "cack_psn is 0, expected 1"
    assert "cack_psn is 0, expected 1 (packet 2)" in "\n".join(explanation(result))


def test_a_listing_shows_fields_that_are_zero_and_leaves_out_flags() -> None:
    result = run("> WRITE_ONLY psn=0 ts=0 a=1\n< SACK cack_psn=1\n")
    sent, sack = (entry_line(entry) for entry in result.entries[:2])
    assert "rqmsn=0 msn=0" in sent
    assert "ack_psn_offset=0" in sack
    assert "ooo_count=0" in sack
    assert not re.search(r" (rtx|pr|tver|type|cc_type)=", sent + sack)


def test_sacks_and_nacks_repeat_their_number_in_the_bth_and_any_number_there_is_taken() -> None:
    steps = "> WRITE_ONLY psn=0 a=1\n< SACK psn=0 cack_psn=0\n+1ms > WRITE_ONLY psn=1 trim=1\n< NACK psn=1 nack_psn=1\n"
    assert run(steps).verdict == TestVerdict.PASS
    head = HEAD.format("must").replace(" responder", " requester")
    for number in (0, 1 << 23):
        answers = f"> SACK cack_psn=0 psn={number}\n> ACKNOWLEDGE msn=1\n* completes status=SUCCESS\n"
        (test,) = parse_tests(f"{head}* write length=64\n< WRITE_ONLY psn=0\n{answers}", "a")
        assert run_virtually(test).verdict == TestVerdict.PASS


def test_what_comes_too_early_or_too_late_fails() -> None:
    assert "too early" in str(run("> WRITE_ONLY psn=0 a=1\n+1ms..5ms < SACK\n").failure)
    assert "within 0.005 ms" in str(run("> WRITE_ONLY psn=0 a=1\n+5us < SACK\n").failure)


def test_what_must_not_come_fails_when_it_does() -> None:
    assert "such a packet came" in str(run("> WRITE_ONLY psn=0 a=1\n+5ms ! SACK\n").failure)


def test_a_variable_is_bound_where_it_is_first_seen_and_compared_afterwards() -> None:
    first = "> WRITE_ONLY psn=0 a=1\n< SACK rcvd_bytes=$n\n+5ms > WRITE_ONLY psn=1 length=1024 a=1\n"
    result = run(first + "< SACK rcvd_bytes=$n+4\n")
    assert (result.verdict, result.observed) == (TestVerdict.PASS, {"n": 1})
    assert run(first + "< SACK rcvd_bytes=$n\n").verdict == TestVerdict.FAIL


def test_packets_are_counted_whatever_lines_they_answered() -> None:
    begin = "> WRITE_ONLY psn=0 a=1\n< SACK cack_psn=0\n+1ms > WRITE_ONLY psn=1 a=1\n< SACK cack_psn=1\n"
    result = run(begin + "? SACK count=$sacks\n? SACK cack_psn=1 count=1\n? NACK count=0\n? ANY count>=$sacks\n")
    assert (result.verdict, result.observed) == (TestVerdict.PASS, {"sacks": 2})
    assert "2 such packets came, expected < 2" in str(run(begin + "? SACK count<2\n").failure)


def test_where_public_sources_are_silent_the_verdict_is_info_never_fail() -> None:
    result = run("> WRITE_ONLY psn=0 a=1\n< SACK cack_psn=1\n", level="info")
    assert (result.verdict, result.is_as_ours) == (TestVerdict.INFO, False)


def test_a_property_without_packets_to_judge_is_inconclusive() -> None:
    result = run("> WRITE_ONLY psn=0 a=1\n< SACK\n= trims-answered\n")
    assert (result.verdict, result.note) == (TestVerdict.INCONCLUSIVE, "no trimmed write was seen")


class SlowMedium(VirtualMedium):
    """A host that keeps tester and devices waiting half of the time."""

    def standstill(self) -> int:
        return self.now() // 2


class WrongDevice(VirtualDevice):
    """Writes a wrong byte at the start of its region."""

    def memory(self, offset: int, length: int, pair: int = 0) -> bytes:
        return b"\x99" + super().memory(offset, length)[1:]


def run_on_a_slow_host(steps: str, device: type[VirtualDevice] = VirtualDevice, level: str = "must") -> TestResult:
    (test,) = parse_tests(HEAD.format(level) + steps, "a")

    def once() -> TestResult:
        devices = [device(0)]
        return TestExecution(test, SlowMedium(devices), devices).run()

    return run_until_clear(once)


@pytest.mark.parametrize(
    "steps",
    [
        "> WRITE_ONLY psn=0 a=1\n< SACK cack_psn=1\n",
        "> WRITE_ONLY psn=1\n* memory offset=0..63 fill=1\n",
        "> WRITE_ONLY psn=1 ecn=3\n+5ms > WRITE_ONLY psn=2 trim=1 bad=icrc cut=9\n+2s ! receives\n= probes-answered\n",
    ],
)
def test_what_is_missing_on_a_host_that_kept_the_tester_waiting_is_inconclusive(steps: str) -> None:
    result = run_on_a_slow_host(steps)
    assert result.verdict == TestVerdict.INCONCLUSIVE
    assert "kept tester or device waiting for" in result.note or "was seen" in result.note


@pytest.mark.parametrize(
    ("steps", "device"),
    [
        ("> WRITE_ONLY psn=0\n+2s * memory offset=0..63 fill=1\n", WrongDevice),
        ("> WRITE_ONLY psn=1\n+2s * memory offset=0..63 fill=0\n", WrongDevice),
        ("> WRITE_ONLY psn=0 a=1\n+2s ! SACK\n", VirtualDevice),
        ("> WRITE_ONLY_IMM psn=0 rqmsn=0 immediate=7\n+2s ! receives\n", VirtualDevice),
    ],
)
def test_no_host_excuses_what_must_not_be(steps: str, device: type[VirtualDevice]) -> None:
    begin = "+0 > WRITE_ONLY psn=5\n+500ms * wait\n"  # so that the host has stood still for long
    result = run_on_a_slow_host(begin + steps, device)
    assert result.verdict == TestVerdict.FAIL
    assert "the same in 4 tries" in result.note
    assert run_on_a_slow_host(begin + steps, device, "info").verdict == TestVerdict.INFO


@pytest.mark.parametrize(
    ("came", "verdict", "runs"),
    [
        ("p", "pass", 1),
        ("ff", "fail", 2),
        ("fp", "inconclusive", 2),
        ("ip", "pass", 2),
        ("iff", "fail", 3),
        ("ifi", "inconclusive", 3),
        ("iiii", "inconclusive", 4),
        ("cccc", "fail", 4),  # c: a contradiction while the host stood still
        ("ccci", "inconclusive", 4),
        ("ccp", "pass", 3),
        ("fc", "inconclusive", 2),
    ],
)
def test_an_inconclusive_test_runs_again_and_a_failure_must_repeat(came: str, verdict: str, runs: int) -> None:
    verdicts = {"p": TestVerdict.PASS, "f": TestVerdict.FAIL, "i": TestVerdict.INCONCLUSIVE}
    verdicts["c"] = TestVerdict.INCONCLUSIVE
    (test,) = parse_tests(HEAD.format("must") + "> WRITE_ONLY psn=0\n", "a")
    contradiction = TestFailure(3, "", "", is_contradiction=True)
    left = [TestResult(test, verdicts[each], contradiction if each == "c" else None) for each in came]
    result = run_until_clear(lambda: left.pop(0))
    assert (result.verdict.value, len(came) - len(left)) == (verdict, runs)
    assert result.note.startswith("failed at first") == ("f" in came and verdict != "fail")


class UnreadyDevice(VirtualDevice):
    """Does not answer in time."""

    def connect(self, peer: Description) -> None:
        raise DeviceSilentError("no answer to 'connect' within 300 s")


class BusyMedium(VirtualMedium):
    """A host that kept the device from running for as long as it was asked to."""

    stood = 0

    def now(self) -> int:
        return super().now() + self.stood

    def standstill(self) -> int:
        self.stood += 10**9
        return self.stood


@pytest.mark.parametrize(("medium", "verdict"), [(VirtualMedium, "fail"), (BusyMedium, "inconclusive")])
def test_a_device_that_its_host_keeps_from_becoming_ready_is_not_judged(
    medium: type[VirtualMedium], verdict: str
) -> None:
    (test,) = parse_tests(HEAD.format("must") + "> WRITE_ONLY psn=0\n", "a")
    devices = [UnreadyDevice(0)]
    assert TestExecution(test, medium(devices), devices).run().verdict.value == verdict


class LackingDevice(VirtualDevice):
    """Says that it has neither NACKs for trimmed packets nor Dynamic MPR."""

    def open(self, wanted: Wanted) -> Description:
        return msgspec.structs.replace(super().open(wanted), trim_nack=False, dynamic_mpr=False)


def test_what_a_device_says_that_it_lacks_is_unsupported() -> None:
    def verdict(test: ScriptTest) -> TestVerdict:
        devices = [LackingDevice(side) for side in range(2 if test.part.value == "both" else 1)]
        return TestExecution(test, VirtualMedium(devices), devices).run().verdict

    trimming = ["table-7-10/1", "table-7-10/3", "7.5.2.1/1", "7.5.2.1/3", "table-7-3/1", "table-7-3/4", "table-7-3/7"]
    for test in chosen(shipped_tests(), [*trimming, "7.5.5.5/2"]):
        assert verdict(test) == TestVerdict.UNSUPPORTED, test.id
    for test in chosen(shipped_tests(), ["table-7-3/10", "7.5.5.5/1", "6.2.2/1"]):
        assert verdict(test) == TestVerdict.PASS, test.id


def test_the_capture_of_a_failure_says_on_its_packets_what_was_expected(tmp_path: Path) -> None:
    result = run("> WRITE_ONLY psn=0 a=1\n< SACK cack_psn=0\n< ACKNOWLEDGE msn=5\n")
    path = tmp_path / "failed.pcapng"
    write_capture(result, path)
    with path.open("rb") as file:
        frames = list(read_frames(file))
    said = [dissect(frame, datagram) for frame in frames if (datagram := find_datagram(frame)) is not None]
    assert [each.message.opcode.name for each in said][:3] == ["WRITE_ONLY", "SACK", "ACKNOWLEDGE"]
    assert all(each.icrc_ok for each in said)
    assert comment_on(result, result.entries[1]) == "as expected: < SACK cack_psn=0"
    assert comment_on(result, result.entries[2]) == "fail: expected < ACKNOWLEDGE msn=5; msn is 1, expected 5"
