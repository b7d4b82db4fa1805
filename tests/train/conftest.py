"""What the tests of training need before they are collected."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out with `--fast` what imports torch as it is collected: that costs each worker seconds for no test."""
    return True if config.getoption("--fast") and collection_path.name == "test_staging.py" else None
