"""The ring of bits against a plain set."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine.state import tracker
from tests.draws import examples
from tests.engine.scripted_peer import Endpoint
from tests.naive.arrivals import Arrivals

WINDOW = 256


@settings(max_examples=examples(60), deadline=None)
@given(
    start=st.integers(0, 1 << 40),
    arrivals=st.lists(st.tuples(st.integers(0, WINDOW - 1), st.integers(0, 7)), max_size=60),
    base=st.integers(0, WINDOW - 64),
)
def test_tracker_agrees_with_a_set(start: int, arrivals: list[tuple[int, int]], base: int) -> None:
    endpoint = Endpoint(layout={"tracked": WINDOW})
    engine, naive = endpoint.engine, Arrivals()
    for offset, facts in arrivals:
        psn = start + offset
        assert tracker.has(engine, 0, psn) == naive.has(psn)
        if not naive.has(psn):
            tracker.add(engine, 0, psn, facts)
            naive.add(psn, facts)
    assert tracker.bitmap(engine, 0, start + base) == naive.bitmap(start + base)
    for psn in sorted(naive.facts)[::2]:
        assert tracker.remove(engine, 0, psn) == naive.remove(psn)
        tracker.add(engine, 0, psn, 0)  # nothing is left of what was there
        assert tracker.remove(engine, 0, psn) == 0
    assert tracker.bitmap(engine, 0, start + base) == naive.bitmap(start + base)
    tracker.clear(engine, 0)
    assert tracker.bitmap(engine, 0, start + base) == 0
    for psn in naive.facts:
        tracker.add(engine, 0, psn, 0)
        assert tracker.remove(engine, 0, psn) == 0


def test_a_queue_pair_that_begins_anew_takes_no_arrivals_from_others() -> None:
    endpoint = Endpoint(peer_of=(0, 0, 0), layout={"tracked": WINDOW})
    for qp in range(3):
        for psn in range(WINDOW):
            tracker.add(endpoint.engine, qp, psn, 0)
    tracker.clear(endpoint.engine, 1)
    for qp, is_kept in enumerate((True, False, True)):
        assert {tracker.has(endpoint.engine, qp, psn) for psn in range(WINDOW)} == {is_kept}
