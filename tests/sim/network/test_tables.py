"""Rows that every hop of a packet reads fit their cache lines; the simulator's speed depends on it."""

from __future__ import annotations

import pytest

from openmrc.core.rows import CACHE_LINE, dtype_of
from openmrc.engine.state.tables import Ev
from openmrc.sim.network.network_tables import EgressPort, Hop, Wire
from openmrc.sim.transports.mrc.frames import MrcFrame


@pytest.mark.parametrize(("row", "lines"), [(Hop, 1), (MrcFrame, 1), (Ev, 0.25), (Wire, 1), (EgressPort, 2)])
def test_row_fills_its_cache_lines(row: type, lines: float) -> None:
    assert dtype_of(row).itemsize == lines * CACHE_LINE
