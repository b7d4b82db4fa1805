"""The NICs of a baseline's transport before the run; UET and RoCE lay theirs out alike."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from openmrc.core import rng
from openmrc.core.rows import Table, column, table
from openmrc.sim.network.network_tables import NONE

Row = TypeVar("Row")


def idle_nics(row: type[Row], nics: int, seed: int) -> Table[Row]:
    """Return NICs with nothing to report and random numbers of their own.

    `row` declares `sent`, `received` and `failed`, the messages to report, and `random`.
    """
    made = table(row, nics)
    for name in ("sent", "received", "failed"):
        column(made, name)[:] = NONE
    column(made, "random")[:] = rng.seeded(seed, np.arange(nics))
    return made
