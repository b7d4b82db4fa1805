"""From the engine's packets to sendmmsg."""

from __future__ import annotations

import pytest

from openmrc.live.datapath.libc import EAGAIN
from openmrc.live.datapath.packets import transmit
from openmrc.live.datapath.rows import INLINE
from openmrc.wire.codes import ECT0
from tests.live.datapath.memory_kernel import EVS, THERE, endpoint
from tests.worlds.live import Datagram, address

DATAGRAM = 1024 + 12 + 4 + 4 + 16 + 4


def test_a_write_leaves_on_every_plane_with_its_payload() -> None:
    with endpoint() as here:
        here.submit_write(16 * 1024)
        here.iterate()
        sent = here.kernel.sent
        assert len(sent) == 16
        assert {here.sockets.sender(each.descriptor)[0] for each in sent} == {0, 1}
        payload = here.memory.tobytes()
        assert all(any(payload[at : at + 1024] in each.body for each in sent) for at in range(0, 16 * 1024, 1024))


def test_a_datagram_goes_to_the_peer_on_its_plane_marked_ect() -> None:
    with endpoint() as here:
        here.submit_write(8 * 1024)
        here.iterate()
        for each in here.kernel.sent:
            plane, ev = here.sockets.sender(each.descriptor)
            assert each.name == address(THERE, plane).packed(0)
            assert each.tos & 3 == ECT0
            assert ev in EVS


def test_a_batch_limits_what_one_iteration_sends_and_the_rest_is_due_at_once() -> None:
    with endpoint() as here:
        here.submit_write(32 * 1024)
        here.iterate(batch=4)
        assert len(here.kernel.sent) == 4
        assert here.nic.wake_at == 0
        here.iterate(batch=64)
        assert here.kernel.sent


def test_packets_to_a_peer_without_an_address_are_errors_not_datagrams() -> None:
    with endpoint() as here:
        for row in here.datapath.peers:
            row.name_length = 0
        here.submit_write(4 * 1024)
        here.iterate()
        assert here.kernel.sent == []
        assert sum(each.send_errors for each in here.datapath.planes) == 4


def test_a_full_socket_is_waited_for_a_few_times_and_then_given_up() -> None:
    with endpoint() as here:
        here.patch.setattr(transmit, "send_messages", lambda *_: -1)
        here.patch.setattr(transmit, "last_error", lambda words: EAGAIN)
        here.submit_write(1024)
        here.iterate()
        plane = next(each for each in here.datapath.planes if each.send_errors)
        assert (plane.stalls, plane.send_errors, plane.last_error) == (3, 1, EAGAIN)


@pytest.mark.parametrize(("length", "pieces"), [(0, 1), (1, 1), (INLINE, 1), (INLINE + 1, 3), (1024, 3)])
def test_a_short_payload_leaves_in_one_piece_with_its_headers(length: int, pieces: int) -> None:
    with endpoint() as here:
        here.submit_write(length)
        here.iterate()
        (sent,) = here.kernel.sent
        assert here.datapath.messages[0].vector_count == pieces
        assert here.memory.tobytes()[:length] in sent.body
        assert len(sent.body) == DATAGRAM - 1024 + (length + 3 & ~3)


def test_nothing_is_sent_twice() -> None:
    with endpoint() as here:
        here.submit_write(8 * 1024)
        seen: list[Datagram] = []
        for _ in range(3):
            here.iterate()
            seen += here.kernel.sent
        assert len({each.body for each in seen}) == len(seen) == 8
