from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from openmrc.train.errors import TrainError
from openmrc.train.links.frames import SLOT
from openmrc.train.links.local_queue_pair import _RECORD, BASE, SEGMENT, SLICE, SLOTS, LocalQueuePair
from openmrc.train.links.segment import OutgoingSegment, map_incoming
from openmrc.train.registrations import LocalRegions
from openmrc.verbs import RegionSlice, SendWr, WcOpcode, WorkCompletion


class End:
    """One end of a connection, with its memory and completions."""

    def __init__(self, rank: int, connection: socket.socket, outgoing: OutgoingSegment, incoming: Any) -> None:
        self.memory = LocalRegions()
        self.completions: list[WorkCompletion] = []
        self.qp = LocalQueuePair(rank, connection, outgoing, incoming, self.memory, self.completions.append)

    def immediates(self) -> list[int | None]:
        return [each.immediate for each in self.completions if each.opcode == WcOpcode.RECV_RDMA_WITH_IMM]

    def sent(self) -> list[int]:
        return [each.wr_id for each in self.completions if each.opcode == WcOpcode.RDMA_WRITE]


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    sockets = socket.socketpair()
    segments = [OutgoingSegment(SEGMENT) for _ in range(2)]
    incoming = [map_incoming(os.dup(each.descriptor), SEGMENT) for each in segments]
    one, other = End(1, sockets[0], segments[0], incoming[1]), End(0, sockets[1], segments[1], incoming[0])
    yield one, other
    one.qp.destroy()
    other.qp.destroy()


def write(end: End, to: End, data: Any, out: Any, **options: Any) -> None:
    source, target = end.memory.take(data), to.memory.take(out)
    part = RegionSlice(source, 0, data.nbytes)  # type: ignore[arg-type]
    end.qp.post_send(SendWr(local=part, remote_addr=target.addr, r_key=target.r_key, **options))


def exchange(*ends: End) -> None:
    for _ in range(100):
        assert all(end.qp.receive() for end in ends)


@pytest.mark.parametrize("length", [0, 1, SLICE - 1, SLICE, SLICE + 1, 3 * SLOTS * SLICE + 5])
def test_a_write_of_any_length_arrives_with_its_immediate(ends: tuple[End, End], length: int) -> None:
    one, other = ends
    data = np.random.default_rng(1).integers(0, 255, length).astype(np.uint8)
    out = np.zeros(length, np.uint8)
    write(one, other, data, out, immediate=9, wr_id=4)
    exchange(other, one)
    assert (out == data).all()
    assert other.immediates() == [9]
    assert one.sent() == [4]
    assert one.qp.outstanding() == 0


def test_writes_complete_in_order_even_if_the_ring_is_full(ends: tuple[End, End]) -> None:
    one, other = ends
    data, out = np.ones(20 * SLICE, np.uint8), np.zeros(20 * SLICE, np.uint8)
    write(one, other, data, out, wr_id=1)
    write(one, other, data[:5], out[:5], wr_id=2, immediate=2)
    assert one.sent() == []
    assert one.qp.outstanding() == 2
    exchange(other, one)
    assert one.sent() == [1, 2]
    assert out.all()


def test_frames_and_staged_chunks_lie_where_the_peer_reads_them(ends: tuple[End, End]) -> None:
    one, other = ends
    slot = one.qp.stage.outbox[3]
    slot[:4] = b"abcd"
    frame = RegionSlice(one.qp.stage.region, 0, 4)
    one.qp.post_send(SendWr(local=frame, remote_addr=BASE + 3 * SLOT, r_key=0, immediate=1))
    chunk = one.memory.take(np.full(100, 5, np.uint8))
    address = BASE + 32 * SLOT
    one.qp.post_send(SendWr(local=RegionSlice(chunk, 0, 100), remote_addr=address, r_key=0, immediate=2))  # type: ignore[arg-type]
    exchange(other)
    assert other.immediates() == [1, 2]
    assert bytes(other.qp.stage.mailbox[3][:4]) == b"abcd"
    assert (other.qp.stage.chunks[0][:100] == 5).all()


def test_memory_that_was_not_announced_is_not_written(ends: tuple[End, End]) -> None:
    one, other = ends
    out = np.zeros(10, np.uint8)
    region = other.memory.take(out)
    source = RegionSlice(one.memory.take(np.ones(20, np.uint8)), 0, 20)  # type: ignore[arg-type]
    one.qp.post_send(SendWr(local=source, remote_addr=region.addr, r_key=region.r_key))  # longer than the region
    with pytest.raises(TrainError, match="not announced memory"):
        other.qp.receive()
    other.memory.give_back(region)
    one.qp.post_send(SendWr(local=source, remote_addr=region.addr, r_key=region.r_key))
    with pytest.raises(TrainError, match="not announced memory"):
        other.qp.receive()
    assert not out.any()


def test_a_slice_longer_than_its_slot_is_refused(ends: tuple[End, End]) -> None:
    one, other = ends
    out = np.zeros(2 * SLICE, np.uint8)
    region = other.memory.take(out)
    one.qp._socket.send(_RECORD.pack(1, 0, 0, 0, region.addr, region.r_key, SLICE + 1))
    with pytest.raises(TrainError, match="not announced memory"):
        other.qp.receive()


def test_records_that_arrive_in_parts_are_put_together(ends: tuple[End, End]) -> None:
    one, other = ends
    record = _RECORD.pack(0, 1, 0, 77, 0, 0, 0)
    for each in record[:-1]:
        one.qp._socket.send(bytes([each]))
        assert other.qp.receive()
    assert other.immediates() == []
    one.qp._socket.send(record[-1:])
    assert other.qp.receive()
    assert other.immediates() == [77]


def test_what_a_peer_sent_before_it_ended_arrives_then_its_end(ends: tuple[End, End]) -> None:
    one, other = ends
    out = np.zeros(100, np.uint8)
    write(one, other, np.ones(100, np.uint8), out, immediate=3)
    one.qp.destroy()
    assert other.qp.receive()
    assert out.all()
    assert other.immediates() == [3]
    assert not other.qp.receive()
