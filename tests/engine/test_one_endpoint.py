"""The first contents that kernels write are those that `build` writes."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.engine.state import one_endpoint
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.params import Settings

LAYOUTS = [
    TableSizes(),
    TableSizes(ports=1, peers=3, qps=9, regions=5, sends=100, receives=3, window=300, tracked=1, wimms=5),
    TableSizes(ports=16, peers=2, qps=3, controls=1000, events=7, mark_rows=3, evs_per_rotation=5),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_set_up_is_build_for_one_endpoint(layout: TableSizes) -> None:
    expected = build(layout, Settings(), packets=2, seed=77)
    made = build(layout, Settings(), packets=2, seed=5)
    for name, rows in made._asdict().items():
        if name != "params":
            np.asarray(rows).view(np.uint8)[:] = 0
    one_endpoint.set_up(made, 77)
    for name, rows in made._asdict().items():
        assert np.array_equal(np.asarray(rows), np.asarray(getattr(expected, name))), name
