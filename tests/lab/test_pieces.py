"""What a receiver of test pieces notices."""

from __future__ import annotations

import numpy as np
import pytest

from bench.lab.experiments.pieces import PIECE, is_whole, longest_gap_ms, write_piece


@pytest.mark.parametrize("packet", [1024, 2048, 4096])
@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_packet_that_was_never_written_is_noticed_where_another_piece_lay_before(packet: int, place: int) -> None:
    memory, fresh = memoryview(bytearray(PIECE)), memoryview(bytearray(PIECE))
    write_piece(memory, 7)
    assert is_whole(memory, 7)
    write_piece(fresh, 519)
    missing = range(0, PIECE, packet)[place]
    for at in range(0, PIECE, packet):
        if at != missing:
            memory[at : at + packet] = fresh[at : at + packet]
    assert not is_whole(memory, 519)
    memory[missing : missing + packet] = fresh[missing : missing + packet]
    assert is_whole(memory, 519)


@pytest.mark.parametrize("at", [0, 8, 1023, PIECE - 1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    memory = memoryview(bytearray(PIECE))
    write_piece(memory, 1)
    memory[at] ^= 1
    assert not is_whole(memory, 1)


def test_a_gap_reaches_to_the_ends_of_the_time_it_is_looked_for_in() -> None:
    times = np.array([1_000_000, 2_000_000, 9_000_000])
    assert longest_gap_ms(times, 1_500_000, 4_000_000) == 2.0
    assert longest_gap_ms(times, 0, 10_000_000) == 7.0
