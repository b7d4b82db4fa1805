"""The source table against a dictionary, over the worst addresses that somebody could choose."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.core.rows import table
from openmrc.engine.state.tables import NONE
from openmrc.live.datapath import handles, sources
from openmrc.live.datapath.rows import NicRow, SourceAddress
from tests.draws import examples

SLOTS = 16


class Tables:
    """The two tables that the source table is made of."""

    def __init__(self, key: int = 0) -> None:
        self.nic = table(NicRow, 1)
        self.sources = table(SourceAddress, SLOTS)
        self.nic[0].source_key = key


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Tables:
    made = Tables()
    monkeypatch.setattr(handles, "datapath_at", lambda at: made)
    return made


def insert(rows: Sequence[tuple[int, ...]], peer: int) -> int:
    found: int = interpreted(sources.insert)(0, np.array(rows, np.int64).reshape(-1, 4), len(rows), peer)
    return found


def remove(rows: Sequence[tuple[int, ...]], peer: int) -> None:
    interpreted(sources.remove)(0, np.array(rows, np.int64).reshape(-1, 4), len(rows), peer)


def interpreted(entry: Any) -> Any:
    return getattr(entry, "py_func", entry)


def test_what_belongs_to_another_peer_is_not_taken_over(tables: Tables) -> None:
    assert insert([(0, 0, 7, 1), (0, 0, 7, 2)], peer=1) == 2
    assert insert([(0, 0, 7, 3), (0, 0, 7, 2)], peer=2) == 1
    assert sources.find_source(tables, 0, 0, 7, 2) == 1  # type: ignore[arg-type]
    assert sources.find_source(tables, 0, 0, 7, 3) == NONE  # type: ignore[arg-type]


def test_a_table_without_room_takes_nothing_and_every_search_ends(tables: Tables) -> None:
    rows = [(0, 0, 7, port) for port in range(1, 3001)]
    assert insert(rows, peer=1) == SLOTS
    assert not np.asarray(tables.sources)["used"].any()
    assert insert(rows[:SLOTS], peer=1) == SLOTS
    assert sources.find_source(tables, 0, 0, 7, 3001) == NONE  # type: ignore[arg-type]


ROWS = st.tuples(st.integers(0, 1), st.sampled_from([0, -1, 1 << 40]), st.sampled_from([7, -8]), st.integers(0, 3))


@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), ROWS, st.integers(0, 3)), max_size=60), key=st.integers(0, 2**31 - 1))
def test_the_table_remembers_what_a_dictionary_does(
    steps: list[tuple[bool, tuple[int, int, int, int], int]], key: int
) -> None:
    made, naive = Tables(key), dict[tuple[int, int, int, int], int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handles, "datapath_at", lambda at: made)
        for adds, row, peer in steps:
            if adds and len(naive) < SLOTS // 2:
                taken = insert([row], peer) == 1
                assert taken == (naive.get(row, peer) == peer)
                naive.setdefault(row, peer)
            elif not adds:
                remove([row], peer)
                if naive.get(row) == peer:
                    del naive[row]
            for plane in range(2):
                for port in range(4):
                    for high in (0, -1, 1 << 40):
                        for low in (7, -8):
                            found = sources.find_source(made, plane, high, low, port)  # type: ignore[arg-type]
                            assert found == naive.get((plane, high, low, port), NONE)
