"""`torchrun --max-restarts` starts a job again after one of its ranks was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openmrc.train.errors import RendezvousError
from openmrc.train.pytorch import membership
from tests.train.ranks import MemoryStore

pytestmark = pytest.mark.needs("torch", "jit")
ROOT = Path(__file__).parents[3]


def launched(module: str, *arguments: str) -> str:
    """Run a module at two ranks of torchrun with one restart; return what it printed."""
    launch = "-m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1 -m"
    done = subprocess.run(
        [sys.executable, *launch.split(), f"tests.train.pytorch.{module}", *arguments],
        env={**os.environ, "MRC_PLANES": "2", "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(folder: Path, end: str) -> list[Any]:
    folder.mkdir()
    launched("restarting", str(folder), end)
    return [json.loads((folder / f"losses{rank}.json").read_text()) for rank in range(2)]


def test_a_restarted_process_joins_the_same_rank_over_the_same_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    assert membership.join(store, "default", 0) == "default/0/1"
    assert membership.join(store, "default", 0) == "default/0/2"
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a fork
    with pytest.raises(RendezvousError, match="rank 0 joined twice"):
        membership.join(store, "default", 0)
    monkeypatch.setenv(membership.RESTART_VARIABLE, "1")
    assert membership.join(store, "default", 0) == "default/1/1"


def test_groups_of_other_ranks_with_one_torch_name_meet_apart() -> None:
    names = {membership.name_of("4", ranks) for ranks in ([], [0], [2], [0, 2], [2, 0])}
    assert len(names) == 5
    assert membership.name_of("4", []) == "4"


@pytest.mark.exhaustive
def test_a_job_with_a_killed_rank_restarts_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    assert losses(tmp_path / "killed", "dies") == losses(tmp_path / "whole", "lives")


def losses_on(job: str, backend: str) -> list[str]:
    """Return the lines with losses of a job of two ranks."""
    return sorted(line for line in launched(job, backend).splitlines() if line.startswith("loss "))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "job",
    [
        pytest.param("accelerating", marks=pytest.mark.needs("accelerate")),
        pytest.param("lightning_job", marks=pytest.mark.needs("lightning")),
        pytest.param("trainer_job", marks=pytest.mark.needs("transformers")),
    ],
)
def test_a_library_has_the_losses_that_it_has_on_gloo(job: str) -> None:
    ours = losses_on(job, "mrc")
    assert ours == losses_on(job, "gloo")
    assert len(ours) > 30
