"""Skips tests whose needs this machine does not meet, and lists them at the end of the run with a remedy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.needs import NEEDS, REASON, missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "lab_rights" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("lab"))
        names = [str(name) for mark in item.iter_markers("needs") for name in mark.args]
        if lacking := missing(*names):
            item.add_marker(pytest.mark.skip(reason=REASON + ", ".join(lacking)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found = reason.partition(REASON)[2]
        skipped.update(found.split(", ") if found else [reason.removeprefix("Skipped: ")])
    for name, count in sorted(skipped.items()):
        remedy = f" ({NEEDS[name].remedy})" if name in NEEDS else ""
        terminalreporter.write_line(f"skipped {count}: {name}{remedy}")
