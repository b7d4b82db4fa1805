"""Skips tests whose needs this machine does not meet, and lists them at the end of the run with a remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.needs import NEEDS, REASON, missing


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--needing", default="", metavar="NAMES", help="run only tests that need one of these (commas)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "exhaustive" not in config.option.markexpr:
        _deselect(config, items, lambda item: item.get_closest_marker("exhaustive") is not None)
    wanted = set(filter(None, config.getoption("--needing").split(",")))
    if unknown := wanted - set(NEEDS):
        raise pytest.UsageError(f"--needing: {', '.join(sorted(unknown))}: not in tests/needs.py")
    for item in items:
        if "lab_rights" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("lab"))
        if lacking := missing(*sorted(_needs(item))):
            item.add_marker(pytest.mark.skip(reason=REASON + ", ".join(lacking)))
    if wanted:
        _deselect(config, items, lambda item: not wanted & _needs(item))


def _needs(item: pytest.Item) -> set[str]:
    return {str(name) for mark in item.iter_markers("needs") for name in mark.args}


def _deselect(config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], bool]) -> None:
    left_out = [item for item in items if is_left_out(item)]
    items[:] = [item for item in items if not is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found = reason.partition(REASON)[2]
        skipped.update(found.split(", ") if found else [reason.removeprefix("Skipped: ")])
    for name, count in sorted(skipped.items()):
        remedy = f" ({NEEDS[name].remedy})" if name in NEEDS else ""
        terminalreporter.write_line(f"skipped {count}: {name}{remedy}")
