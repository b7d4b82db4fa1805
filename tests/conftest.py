"""The tiers of the tests, and what they need of the machine.

`--fast` (`make test`) leaves out what needs root or programs of others, and tests marked `exhaustive` or `long`;
`--rest` (`make test-rest`) runs just those, but for `long` ones, more draws of a search that begins in another test.
Without either (`make test-all`) everything runs. Tests whose needs this machine does not meet are skipped and listed
with a remedy.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from spec.space import VARIABLE, seed_of_the_day
from tests import leftovers
from tests.draws import INTERPRETED, IS_INTERPRETED
from tests.needs import EVERYWHERE, NEEDS, REASON, missing

# An example may take as long as the machine lets it: the limit of a whole test is in pyproject.toml.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("compiled", UNHURRIED)
settings.register_profile("interpreted", UNHURRIED, derandomize=True, max_examples=INTERPRETED)
settings.load_profile("interpreted" if IS_INTERPRETED else "compiled")

os.environ[VARIABLE] = str(seed_of_the_day())  # one for all workers, also at midnight

pytest_configure, pytest_sessionstart = leftovers.pytest_configure, leftovers.pytest_sessionstart


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out needs of root or programs, and searches")
    parser.addoption("--rest", action="store_true", help="run what --fast leaves out, without the longest searches")
    parser.addoption("--needing", default="", metavar="NAMES", help="run only tests that need one of these (commas)")


def pytest_collection() -> None:
    gc.disable()  # modules and thousands of tests come, and nothing goes


def pytest_collection_finish() -> None:
    gc.freeze()  # they stay until the end: no collection looks at them again
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(filter(None, config.getoption("--needing").split(",")))
    if unknown := wanted - set(NEEDS):
        raise pytest.UsageError(f"--needing: {', '.join(sorted(unknown))}: not in tests/needs.py")
    for item in items:
        if "lab_rights" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("lab"))
    if config.getoption("--fast"):
        _deselect(config, items, _is_for_later)
    if config.getoption("--rest"):
        _deselect(config, items, lambda item: not _is_for_later(item) or _is_marked(item, "long"))
    if wanted:
        _deselect(config, items, lambda item: not wanted & _needs(item))
    for item in items:
        if lacking := missing(*sorted(_needs(item))):
            item.add_marker(pytest.mark.skip(reason=REASON + ", ".join(lacking)))


def _is_for_later(item: pytest.Item) -> bool:
    return bool(_needs(item) - EVERYWHERE) or _is_marked(item, "exhaustive") or _is_marked(item, "long")


def _is_marked(item: pytest.Item, name: str) -> bool:
    return item.get_closest_marker(name) is not None


def _needs(item: pytest.Item) -> set[str]:
    return {str(name) for mark in item.iter_markers("needs") for name in mark.args}


def _deselect(config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], bool]) -> None:
    left_out = [item for item in items if is_left_out(item)]
    items[:] = [item for item in items if not is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    if any(report.nodeid.startswith("tests/space/") for report in reports):
        terminalreporter.write_line(f"tests/space: drawn with {VARIABLE}={os.environ[VARIABLE]}")
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found = reason.partition(REASON)[2]
        skipped.update(found.split(", ") if found else [reason.removeprefix("Skipped: ")])
    for name, count in sorted(skipped.items()):
        remedy = f" ({NEEDS[name].remedy})" if name in NEEDS else ""
        terminalreporter.write_line(f"skipped {count}: {name}{remedy}")
