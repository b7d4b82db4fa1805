"""A larger window is never slower, and takes the time of its closed form: drawn rows of bench/sim/windows.py."""

from __future__ import annotations

import pytest

from bench.sim.windows import Case, row

DRAWN = (
    Case("flow", 16_384, 4096, 100, 100),  # a window of seven packets by default, a threshold of four
    Case("flow", 65_536, 1024, 800, 1000),
    Case("ring", 16_384, 4096, 100, 100),
    Case("ring", 65_536, 4096, 800, 100),
    Case("incast", 16_384, 4096, 100, 100),
)


@pytest.mark.parametrize("case", DRAWN, ids=lambda case: f"{case.shape}-{case.threshold}-{case.mtu}-{case.gbps}")
def test_a_larger_window_is_never_slower_and_takes_its_closed_form(case: Case) -> None:
    assert list(row(case, (1, 3, 6, 7, 13, 33)).problems()) == []
