"""What a test came to: verdict, what failed, what was observed, and every packet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic

from openmrc.conform.conversation import TapEntry
from openmrc.conform.datagrams import TapLink
from openmrc.conform.language import DEFAULT_PATIENCE, Level, ScriptTest

MOST_TRIES = 4  # of a test that is inconclusive
TOLERATED_STANDSTILL = 0.25  # of the time that an expectation waits
LONGEST_STANDSTILL = 100_000_000  # ns: a device may have given up by then, however long the expectation waits


class TestVerdict(Enum):
    __test__ = False  # not a test of pytest

    PASS = "pass"
    FAIL = "fail"
    UNSUPPORTED = "unsupported"  # the device cannot do what the test needs
    INCONCLUSIVE = "inconclusive"  # this host was too slow, or there was nothing to judge
    INFO = "info"  # public sources are silent: what was seen is reported


NOTHING_JUDGED = (TestVerdict.UNSUPPORTED, TestVerdict.INCONCLUSIVE)


@dataclass(frozen=True)
class TestFailure:
    """The line that was not fulfilled."""

    __test__ = False

    line: int
    step: str
    reason: str
    packets: tuple[int, ...] = ()  # numbers of those that came closest
    is_contradiction: bool = False  # something came that must not be: no pause of the host explains that in every try


@dataclass
class TestResult:
    __test__ = False

    test: ScriptTest
    verdict: TestVerdict
    failure: TestFailure | None = None
    note: str = ""  # why it is unsupported or inconclusive
    observed: dict[str, int] = field(default_factory=dict)  # the variables of the script
    entries: list[TapEntry] = field(default_factory=list)
    reactions: list[tuple[str, int]] = field(default_factory=list)  # what was answered by what, and after how long (ns)
    relayed: list[int] = field(default_factory=list)  # ns that each packet spent in the relay
    links: list[list[TapLink]] = field(default_factory=list)  # addresses of each side, one pair a plane
    devices: list[str] = field(default_factory=list)  # what each side says that it is
    seconds: float = 0.0  # of the test's own clock

    def conclude(self, standstill: int) -> None:
        """Come to a verdict of a device that has played; `standstill` (ns): how long the host kept it from that."""
        if self.verdict != TestVerdict.PASS:
            return
        if self.failure is not None:
            if standstill > min(TOLERATED_STANDSTILL * self._patience(), LONGEST_STANDSTILL):
                self.verdict = TestVerdict.INCONCLUSIVE
                self.note = f"this host kept tester or device waiting for {standstill / 1e6:.0f} ms"
                return
            self.verdict = TestVerdict.FAIL
        if self.test.level == Level.INFO:
            self.verdict = TestVerdict.INFO
        packets = [each.packet for each in self.entries if each.packet is not None]
        supposing = next((each.supposing for each in packets if each.supposing), "")
        if supposing and self.test.clause == "wire-icrc":
            self.note = f"the ICRC is right for {supposing}, which sockets hide"

    def conclude_unopened(self, waited: int, standstill: int) -> None:
        """Judge a device that made no queue pair, whatever the level: a busy host may have kept it from that (ns)."""
        if self.failure is None:
            return
        self.verdict = TestVerdict.FAIL
        if not self.failure.is_contradiction and standstill > TOLERATED_STANDSTILL * waited:
            self.verdict = TestVerdict.INCONCLUSIVE
            self.note = f"not ready yet: this host kept tester or device waiting for {standstill / 1e9:.0f} s"

    def _patience(self) -> int:
        waits = (each.latest for each in self.test.steps if self.failure is not None and each.line == self.failure.line)
        return next(waits, None) or DEFAULT_PATIENCE

    @property
    def is_as_ours(self) -> bool:
        """Whether the device did what this implementation does; INFO says no more than that."""
        return self.failure is None


def run_until_clear(run: Callable[[], TestResult], tries: int = MOST_TRIES) -> TestResult:
    """Run a test until its verdict can be trusted, and return the last result.

    An inconclusive one runs again, `tries` times in all: a busy host seldom spoils each. Only a failure that repeats
    is one: a busy host fails once. The host excuses what is missing or late; the same contradiction in every try, of
    two at least, is a failure however busy it was.
    """
    results = [run()]
    while results[-1].verdict == TestVerdict.INCONCLUSIVE and len(results) < tries:
        results.append(run())
    begun = monotonic()
    is_alone = len(results) == 1 and results[0].verdict == TestVerdict.INCONCLUSIVE
    if results[-1].verdict == TestVerdict.FAIL or (is_alone and _contradicts(results)):
        results.append(run())
    last = results[-1]
    if last.verdict == TestVerdict.INCONCLUSIVE and _contradicts(results):
        last.verdict = TestVerdict.INFO if last.test.level == Level.INFO else TestVerdict.FAIL
        last.note = f"the same in {len(results)} tries, so no matter that {last.note}"
    elif len(results) > 1 and results[-2].verdict == TestVerdict.FAIL and last.verdict != TestVerdict.FAIL:
        failure = results[-2].failure
        last.note = f"failed at first ({failure.reason if failure else ''}); " + (
            last.note or f"passed when run again, {monotonic() - begun:.1f} s later"
        )
        last.verdict = TestVerdict.INCONCLUSIVE
    return last


def _contradicts(results: Sequence[TestResult]) -> bool:
    """Whether every try ended with a contradiction of the same line."""
    failures = [each.failure for each in results]
    return all(each is not None and each.is_contradiction for each in failures) and (
        len({each.line for each in failures if each is not None}) == 1
    )
