"""What the backend derives from in this version of torch and in others, and the devices of a NIC file."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.train.errors import UnsupportedError
from tests.needs import require

pytestmark = pytest.mark.needs("torch")


class Constructible:
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


class NotConstructible:
    def __init__(self, *arguments: Any) -> None:
        raise TypeError("No constructor defined!")


class ProcessGroup(Constructible):
    pass


@pytest.mark.parametrize(
    ("module", "shape", "name"),
    [
        ({"Backend": NotConstructible}, "PROCESS_GROUP", "ProcessGroup"),
        ({"Backend": Constructible}, "BACKEND", "Constructible"),
        ({"Backend": NotConstructible, "_Backend": Constructible}, "BACKEND", "Constructible"),
        ({"BackendBase": Constructible, "Backend": NotConstructible}, "BACKEND", "Constructible"),
    ],
)
def test_the_newest_class_that_python_can_construct_is_derived_from(module: Any, shape: str, name: str) -> None:
    require("torch")
    from openmrc.train.pytorch.process_group import Shape, base_of

    chosen, base = base_of(SimpleNamespace(ProcessGroup=ProcessGroup, **module))
    assert chosen == Shape[shape]
    assert base.__name__ == name


def test_torch_finds_the_backend_without_an_import_of_ours() -> None:
    require("torch")
    import subprocess
    import sys

    code = "import torch.distributed as d, sys; print('mrc' in d.Backend.backend_list, 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "False"]


def test_the_collector_works_again_after_a_group_is_created_or_refused() -> None:
    require("torch")
    from openmrc.train.pytorch import registration

    assert gc.isenabled()
    with pytest.raises(UnsupportedError, match="off"), registration._without_collector():
        raise UnsupportedError("off" if not gc.isenabled() else "on")
    assert gc.isenabled()
