"""`make setup` with a stand-in for Python: what pip reports decides whether the environment counts as ready."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What `make setup` needs of a clone."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def setup(clone: Path, pip_status: int) -> subprocess.CompletedProcess[str]:
    """Run `make setup` with a Python whose pip installs nothing and returns a status."""
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f"#!/bin/sh\necho pip said this\nexit {pip_status}\n")
    python.chmod(0o755)
    return subprocess.run(["make", "setup"], cwd=clone, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.needs("make")
def test_an_environment_is_ready_only_when_pip_has_installed_everything(clone: Path) -> None:
    failed = setup(clone, pip_status=1)
    assert failed.returncode != 0
    assert "pip said this" in failed.stdout
    assert "pip could not install everything" in failed.stderr
    assert setup(clone, pip_status=0).returncode == 0
    again = setup(clone, pip_status=1)  # ready: nothing to install
    assert again.returncode == 0
    (clone / "constraints.txt").touch()
    assert setup(clone, pip_status=1).returncode != 0
    assert setup(clone, pip_status=1).returncode != 0
