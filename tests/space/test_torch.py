"""Collectives through torch, against Gloo."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from spec.space import surfaces
from tests.needs import require
from tests.train.pytorch.torch_ranks import Ranks, ranks

from .drawing import drawn

pytestmark = pytest.mark.needs("torch", "jit")
MOST = max(surfaces()["torch"].dimensions["ranks"])
SECONDS = 60.0  # for a collective, also on a busy machine


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, Ranks]]:
    require("torch", "jit")
    with ranks(MOST, shares_memory=True) as shared, ranks(MOST) as network:
        yield {"shared": shared, "network": network}


@drawn("torch", few=0)
def test_a_collective_leaves_what_gloo_leaves(row: SimpleNamespace, processes: dict[str, Ranks]) -> None:
    fields = {
        "collective": row.collective,
        "op": row.op,
        "dtype": row.dtype,
        "elements": row.elements,
        "call": row.call,
        "root": row.root,
    }
    processes[row.memory].run("matches_gloo", fields, size=row.ranks, timeout=SECONDS)
