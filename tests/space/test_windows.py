"""A larger window is never slower, and takes the time of its closed form, in the simulator."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.sim import windows

from .drawing import drawn

pytestmark = pytest.mark.needs("jit")


@drawn("windows", few=4, quick=lambda row: row.shape != "ring")
def test_a_larger_window_is_never_slower_and_takes_its_closed_form(row: SimpleNamespace) -> None:
    case = windows.Case(row.shape, row.threshold, row.mtu, row.gbps, row.link_ns)
    assert list(windows.row(case, (row.window, row.window + 1)).problems()) == []
