"""Which commit a bench ran on, for the figures that are kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_WHAT_RUNS = (".", ":!bench/results", ":!docs", ":!*.md")  # figures of runs before this one change no run


def commit() -> str:
    """Return the commit of this tree, with -dirty if what runs was changed; empty without git."""
    name = _git("describe", "--always", "--abbrev=10").stdout.strip()
    is_changed = name and _git("diff", "--quiet", "HEAD", "--", *_WHAT_RUNS).returncode == 1
    return f"{name}-dirty" if is_changed else name


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
