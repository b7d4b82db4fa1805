"""Rings through the rows of a table, against a deque."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from openmrc.core import ring
from openmrc.core.rows import Bool, Int, column, table

MEMBERS = 4


class _Holder:
    ready_tail: Int
    ready_count: Int


class _Member:
    next_ready: Int
    listed: Bool


@given(steps=st.lists(st.tuples(st.sampled_from(["append", "turn", "drop"]), st.integers(0, MEMBERS - 1)), max_size=30))
def test_a_ring_does_what_a_deque_does(steps: list[tuple[str, int]]) -> None:
    holders, members = table(_Holder, 1), table(_Member, MEMBERS)
    holder, expected = holders[0], deque[int]()
    holder.ready_tail = ring.NONE
    for step, index in steps:
        if step == "append" and index not in expected:
            ring.append(holder, members, index)
            expected.append(index)
        elif step == "turn" and expected:
            ring.turn(holder, members)
            expected.rotate(-1)
        elif step == "drop" and expected:
            assert ring.drop_front(holder, members) == expected.popleft()
        assert ring.front(holder, members) == (expected[0] if expected else ring.NONE)
        assert holder.ready_count == len(expected)
        assert set(column(members, "listed").nonzero()[0]) == set(expected)
