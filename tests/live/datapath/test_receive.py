"""From recvmmsg to the engine: who sent it, how it is cut, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.engine import lifecycle
from openmrc.engine.state.machines import QpEvent
from openmrc.engine.state.tables import NONE
from openmrc.live.datapath import sources
from openmrc.live.datapath.packets import impair, receive
from openmrc.live.host.addresses import PlaneAddress
from openmrc.wire.codes import CONGESTED, Opcode
from tests.live.datapath.memory_kernel import EVS, THERE, Endpoint, endpoint
from tests.worlds.live import address

GARBAGE = bytes(range(64))


def arrive(here: Endpoint, body: bytes, source: PlaneAddress | None = None, tos: int = 0, plane: int = 0) -> None:
    """Let the plane's socket hand over one datagram, and take it."""
    there = source or PlaneAddress(address(THERE, plane).ip, EVS[0])
    here.kernel.arriving = (body, there.packed(), tos)
    receive.take(here.datapath, plane)


def test_a_known_source_gives_a_train_with_its_peer_plane_and_entropy_value() -> None:
    with endpoint() as here:
        arrive(here, GARBAGE, tos=CONGESTED, plane=1)
        train = here.datapath.trains[0]
        assert here.nic.trains == 1
        assert (train.plane, train.peer, train.port, train.entropy) == (1, 0, EVS[0], EVS[0])
        assert (train.length, train.segment, train.tos) == (64, 64, CONGESTED)


@pytest.mark.parametrize("stranger", ["10.0.0.77:49152", "10.1.0.2:49152"])
def test_a_source_that_is_no_peer_on_this_plane_is_refused(stranger: str) -> None:
    with endpoint() as here:
        arrive(here, GARBAGE, PlaneAddress.parse(stranger))
        assert here.nic.trains == 0
        assert (here.datapath.planes[0].refused, here.nic.unknown_source) == (1, 1)


@pytest.mark.parametrize("body", [b"\0", GARBAGE, bytes(4096)])
def test_bytes_that_are_no_packet_are_refused_and_reach_no_queue_pair(body: bytes) -> None:
    with endpoint() as here:
        arrive(here, body)
        before = here.engine.qps[0].received_packets
        receive.deliver(here.engine, here.datapath)
        assert (here.datapath.planes[0].arrived, here.datapath.planes[0].refused) == (1, 1)
        assert here.engine.qps[0].received_packets == before
        assert here.nic.trains == 0


def test_a_packet_with_a_wrong_icrc_is_counted_apart() -> None:
    with endpoint() as here:
        here.submit_write(64)
        here.iterate()
        arrive(here, here.kernel.sent[0].body)  # sealed for the way there, not for the way back
        receive.deliver(here.engine, here.datapath)
        assert here.datapath.planes[0].bad_icrc == 1


def test_a_train_is_cut_into_packets_of_its_segment() -> None:
    with endpoint() as here:
        arrive(here, bytes(250))
        here.datapath.trains[0].segment = 100
        receive.deliver(here.engine, here.datapath)
        assert here.datapath.planes[0].arrived == 3


def test_an_empty_socket_gives_nothing() -> None:
    with endpoint() as here:
        assert not receive.take(here.datapath, 0)
        assert here.nic.trains == 0


@pytest.mark.parametrize("offset", [0, 1, 16, 63])
@pytest.mark.parametrize("length", [1, 64, receive.STREAMED - 1, receive.STREAMED, 4095, 4096])
def test_a_payload_is_placed_whole_at_any_alignment_and_nothing_beside_it(offset: int, length: int) -> None:
    payload = np.random.default_rng(length).integers(1, 256, length).astype(np.uint8)
    memory = np.zeros(length + 256, np.uint8)
    first = (-memory.ctypes.data & 63) + offset
    receive._place(memory.ctypes.data + first, payload.ctypes.data, length)
    np.testing.assert_array_equal(memory[first : first + length], payload)
    assert np.count_nonzero(memory) == length


def test_after_long_datagrams_fewer_are_taken_in_one_call() -> None:
    with endpoint() as here:
        arrive(here, bytes(receive.BULK))
        assert here.datapath.planes[0].bulk
        here.kernel.arriving = (GARBAGE, PlaneAddress(address(THERE, 0).ip, EVS[0]).packed(), 0)
        assert not receive.take(here.datapath, 0)
        assert not here.datapath.planes[0].bulk


def test_an_unknown_address_finds_no_peer() -> None:
    with endpoint() as here:
        assert sources.find_source(here.datapath, 0, 0, 12345, 1) == NONE


PACKETS, MTU = 3, 1024  # of each write
OPCODES = (Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST)


def take_packet(here: Endpoint, psn: int) -> None:
    """Let a packet of writes of three, byte `psn` + 1 throughout, to one place after another, arrive."""
    here.stage_packet(
        psn,
        bytes([psn + 1]) * MTU,
        opcode=int(OPCODES[psn % PACKETS]),
        msn=psn // PACKETS,
        va=here.memory.ctypes.data + psn * MTU,
        dma_length=PACKETS * MTU,
    )
    here.iterate(ready=1, batch=0)
    here.now += impair.NEXT_TRY


@pytest.mark.parametrize("seed", range(8))
def test_in_order_the_last_packet_of_a_write_is_placed_after_all_before_it(seed: int) -> None:
    count = 12 * PACKETS
    with endpoint() as here:
        here.nic.in_order, here.memory[:] = True, 0
        placed = here.memory[: count * MTU].reshape(count, MTU)
        order = np.random.default_rng(seed).permutation(count)
        for number, psn in enumerate(order, 1):
            take_packet(here, int(psn))
            here.iterate(batch=0)
            came = np.isin(np.arange(count), order[:number])
            is_last = np.arange(count) % PACKETS == PACKETS - 1
            np.testing.assert_array_equal(
                placed[:, -1] == np.arange(count) + 1, came & (~is_last | np.logical_and.accumulate(came))
            )
        assert (here.nic.held, here.engine.qps[0].expected_psn, here.engine.qps[0].duplicates) == (0, count, 0)
        np.testing.assert_array_equal(placed, np.repeat(np.arange(1, count + 1)[:, None], MTU, axis=1))


def test_what_waits_for_a_packet_that_never_comes_goes_with_its_queue_pair() -> None:
    with endpoint() as here:
        here.nic.in_order = True
        take_packet(here, PACKETS - 1)
        assert here.nic.held == 1
        assert impair.next_release(here.datapath) <= here.now
        assert lifecycle.move(here.engine, here.now, 0, QpEvent.TO_RESET)
        here.iterate()
        assert here.nic.held == 0
