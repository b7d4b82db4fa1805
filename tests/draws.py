"""How many examples a test draws."""

from __future__ import annotations

import os

IS_INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
INTERPRETED = 25  # examples, for coverage: always the same ones; all of them run compiled


def examples(count: int) -> int:
    """Return how many of so many examples run here."""
    return min(count, INTERPRETED) if IS_INTERPRETED else count
