"""Run many tests against a device and gather what they came to."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from openmrc.conform.devices.contract import DeviceUnderTest
from openmrc.conform.devices.virtual import VirtualDevice
from openmrc.conform.execution import TestExecution
from openmrc.conform.language import PartOfDevice, ScriptTest
from openmrc.conform.media.medium import Medium, VirtualMedium
from openmrc.conform.results import MOST_TRIES, NOTHING_JUDGED, TestResult, TestVerdict, run_until_clear

SIDES = 2
RELAYED = "relay > passed on"  # row of what the tester itself added to packets that it relayed


@dataclass(frozen=True)
class ReactionTimes:
    """How fast a device reacted (us)."""

    reaction: str
    count: int
    min: float
    median: float
    p99: float


@dataclass
class SuiteReport:
    results: list[TestResult] = field(default_factory=list)
    stopped_by: str = ""  # why the tests after these did not run

    @property
    def is_conforming(self) -> bool:
        """Whether all tests ran, something was judged and no test failed."""
        return not (self.stopped_by or self.has_failed or self.is_empty)

    @property
    def has_failed(self) -> bool:
        return any(each.verdict == TestVerdict.FAIL for each in self.results)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was judged: no test, or all were unsupported or inconclusive."""
        return all(each.verdict in NOTHING_JUDGED for each in self.results)

    def counts(self) -> dict[TestVerdict, int]:
        found = Counter(each.verdict for each in self.results)
        return {verdict: found[verdict] for verdict in TestVerdict}

    def pair(self) -> tuple[str, str]:
        """Return what requester and responder of the tests say that they are; empty if nothing said so."""
        requester = responder = ""
        for result in self.results:
            if result.devices and result.test.part != PartOfDevice.RESPONDER:
                requester = result.devices[0]
            if result.devices and result.test.part != PartOfDevice.REQUESTER:
                responder = result.devices[-1]
        return requester, responder

    def reactions(self) -> list[ReactionTimes]:
        gathered: dict[str, list[int]] = defaultdict(list)
        for result in self.results:
            for cause, took in result.reactions:
                gathered[cause].append(took)
            if result.relayed:
                gathered[RELAYED] += result.relayed
        return [_distribution(cause, sorted(times)) for cause, times in sorted(gathered.items())]


def _distribution(cause: str, times: list[int]) -> ReactionTimes:
    least, median, p99 = (times[at] / 1e3 for at in (0, len(times) // 2, -(-len(times) * 99 // 100) - 1))
    return ReactionTimes(cause, len(times), least, median, p99)


def run_suite(
    tests: Iterable[ScriptTest], medium: Medium, devices: Sequence[DeviceUnderTest], slack: int = 0
) -> Iterator[TestResult]:
    """Yield the results of the tests in order; a failure counts only if it repeats, an inconclusive test runs again.

    `devices` are the requester and the responder of tests of two devices; a test of one uses the one it is about.
    `slack` (ns) is added to what an expectation waits, for devices that a person operates, who is not asked to do all
    again because something was inconclusive.
    """
    tries = 1 if slack else MOST_TRIES
    return (run_until_clear(partial(_run, test, medium, devices, slack), tries) for test in tests)


def _run(test: ScriptTest, medium: Medium, devices: Sequence[DeviceUnderTest], slack: int) -> TestResult:
    used = devices if test.part == PartOfDevice.BOTH else devices[:1]
    return TestExecution(test, medium, used, slack, random.Random()).run()


def run_virtually(test: ScriptTest, seed: int = 1) -> TestResult:
    """Run a test against fresh engines in virtual time."""
    count = SIDES if test.part == PartOfDevice.BOTH else 1
    devices = [VirtualDevice(side, seed + side) for side in range(count)]
    return TestExecution(test, VirtualMedium(devices), devices).run()
