"""The rows lie as `prefetch` assumes: whole cache lines, and the fields of one use together."""

import pytest

from openmrc.core.rows import CACHE_LINE, dtype_of
from openmrc.engine.requester import prefetch
from openmrc.engine.state import tables


def line_of(row: type, name: str) -> int:
    fields = dtype_of(row).fields
    assert fields is not None
    return int(fields[name][1]) // CACHE_LINE


@pytest.mark.parametrize("row", [tables.QueuePairRow, tables.Peer])
def test_a_row_is_whole_cache_lines(row: type) -> None:
    assert dtype_of(row).itemsize % CACHE_LINE == 0


def test_an_ev_is_a_quarter_of_a_cache_line_and_a_rotation_half_of_one() -> None:
    assert 2 * dtype_of(tables.PortRotation).itemsize == CACHE_LINE
    assert 4 * dtype_of(tables.Ev).itemsize == CACHE_LINE


@pytest.mark.parametrize("name", ["expected_psn", "nak_syndrome", "endpoint", "heard_ports", "deadlines"])
def test_the_responders_fields_lie_in_its_lines(name: str) -> None:
    assert prefetch.RESPONDER <= line_of(tables.QueuePairRow, name) < prefetch.RESPONDER + prefetch.RESPONDER_LINES


@pytest.mark.parametrize("name", ["endpoint", "deadlines", "next_psn", "inflight", "lost_cursor", "inferred_losses"])
def test_the_requesters_fields_lie_in_its_lines(name: str) -> None:
    assert prefetch.REQUESTER <= line_of(tables.QueuePairRow, name) < prefetch.REQUESTER + prefetch.REQUESTER_LINES


@pytest.mark.parametrize(
    ("name", "lines"),
    [("address", prefetch.SHARED_LINES), ("cwnd", prefetch.SHARED_LINES), ("qa_trigger", prefetch.WINDOW_LINES)],
)
def test_a_peers_window_lies_in_its_first_lines(name: str, lines: int) -> None:
    assert line_of(tables.Peer, name) < lines
