"""The source table against a dictionary, over the worst addresses that somebody could choose."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.core.rows import table
from openmrc.engine.state.tables import NONE
from openmrc.live.datapath import sources
from openmrc.live.datapath.rows import NicRow, SourceAddress
from tests.draws import examples

SLOTS = 16


class Tables:
    """The two tables that the source table is made of."""

    def __init__(self, key: int = 0) -> None:
        self.nic = table(NicRow, 1)
        self.sources = table(SourceAddress, SLOTS)
        self.nic[0].source_key = key


def test_what_belongs_to_another_peer_is_not_taken_over() -> None:
    tables: Any = Tables()
    assert all(sources.give(tables, 0, 0, 7, port, 1) for port in (1, 2))
    assert not sources.give(tables, 0, 0, 7, 2, 2)
    sources.take_back(tables, 0, 0, 7, 1, 2)
    assert [sources.find_source(tables, 0, 0, 7, port) for port in (1, 2, 3)] == [1, 1, NONE]


def test_a_table_without_room_takes_no_more_and_every_search_ends() -> None:
    tables: Any = Tables()
    assert [sources.give(tables, 0, 0, 7, port, 1) for port in range(1, 3001)] == [True] * SLOTS + [False] * 2984
    assert sources.find_source(tables, 0, 0, 7, 3001) == NONE


ROWS = st.tuples(st.integers(0, 1), st.sampled_from([0, -1, 1 << 40]), st.sampled_from([7, -8]), st.integers(0, 3))


@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), ROWS, st.integers(0, 3)), max_size=60), key=st.integers(0, 2**31 - 1))
def test_the_table_remembers_what_a_dictionary_does(
    steps: list[tuple[bool, tuple[int, int, int, int], int]], key: int
) -> None:
    made: Any = Tables(key)
    naive = dict[tuple[int, int, int, int], int]()
    for adds, row, peer in steps:
        if adds and len(naive) < SLOTS // 2:
            assert sources.give(made, *row, peer) == (naive.setdefault(row, peer) == peer)
        elif not adds:
            sources.take_back(made, *row, peer)
            if naive.get(row) == peer:
                del naive[row]
        for plane in range(2):
            for port in range(4):
                for high in (0, -1, 1 << 40):
                    for low in (7, -8):
                        found = sources.find_source(made, plane, high, low, port)
                        assert found == naive.get((plane, high, low, port), NONE)
