"""Which commit a bench ran on, for the figures that are kept."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str:
    """Return the commit of this tree, with -dirty if it was changed; empty without git."""
    described = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    root = Path(__file__).parents[2]
    return subprocess.run(described, cwd=root, capture_output=True, text=True, check=False).stdout.strip()
