import time

import pytest

from openmrc.apps.listening import Refusals


def test_a_flood_of_refusals_is_one_line_a_second_that_counts_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = 100.0, list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refusals = Refusals(said.append)
    for number in range(50):
        refusals(f"peer {number}")
    now = 101.5
    refusals("the next")
    assert said == ["rejected peer 0", "rejected the next (and 49 more before)"]
