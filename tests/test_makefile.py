"""`make setup` with a stand-in for Python: what pip reports decides whether the environment counts as ready."""

from __future__ import annotations

import os
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


def setup(clone: Path, pip_status: int, target: str = "setup") -> subprocess.CompletedProcess[str]:
    """Run `make setup` with a Python whose pip installs nothing and returns a status."""
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f"#!/bin/sh\necho pip said this of $*\nexit {pip_status}\n")
    python.chmod(0o755)
    # `make test` runs this file: the make inside would say that it is one.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", target], cwd=clone, env=own, capture_output=True, text=True, timeout=60, check=False)


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


@pytest.mark.needs("make")
def test_the_demo_installs_what_it_runs_and_nothing_for_tests(clone: Path) -> None:
    mrc = clone / ".venv" / "bin" / "mrc"
    mrc.parent.mkdir(parents=True)
    mrc.write_text("#!/bin/sh\necho moved\n")
    mrc.chmod(0o755)
    first = setup(clone, pip_status=0, target="demo")
    assert first.stdout.splitlines()[-1] == "moved"
    assert "-e .\n" in first.stdout
    again = setup(clone, pip_status=1, target="demo")  # ready: nothing to install
    assert (again.returncode, again.stdout) == (0, "moved\n")
    assert "-e .[dev]\n" in setup(clone, pip_status=0).stdout
