"""Skips tests whose needs this machine does not meet, and lists them at the end of the run with a remedy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.needs import NEEDS, REASON, missing


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--needing", default="", metavar="NAMES", help="run only tests that need one of these (commas)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(filter(None, config.getoption("--needing").split(",")))
    if unknown := wanted - set(NEEDS):
        raise pytest.UsageError(f"--needing: {', '.join(sorted(unknown))}: not in tests/needs.py")
    for item in items:
        if "lab_rights" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("lab"))
        names = [str(name) for mark in item.iter_markers("needs") for name in mark.args]
        if lacking := missing(*names):
            item.add_marker(pytest.mark.skip(reason=REASON + ", ".join(lacking)))
    if wanted:
        chosen = [
            item for item in items if wanted & {name for mark in item.iter_markers("needs") for name in mark.args}
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found = reason.partition(REASON)[2]
        skipped.update(found.split(", ") if found else [reason.removeprefix("Skipped: ")])
    for name, count in sorted(skipped.items()):
        remedy = f" ({NEEDS[name].remedy})" if name in NEEDS else ""
        terminalreporter.write_line(f"skipped {count}: {name}{remedy}")
