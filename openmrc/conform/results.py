"""What a test came to: verdict, what failed, what was observed, and every packet."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from openmrc.conform.conversation import TapEntry
from openmrc.conform.datagrams import TapLink
from openmrc.conform.language import ScriptTest


class TestVerdict(Enum):
    """Outcome of a test."""

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
    """Outcome of one test."""

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

    @property
    def is_as_ours(self) -> bool:
        """Whether the device did what this implementation does; INFO says no more than that."""
        return self.failure is None
