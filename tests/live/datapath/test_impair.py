"""Impairments, packet by packet."""

from __future__ import annotations

import numpy as np

from openmrc.live.datapath.packets import impair
from openmrc.live.datapath.packets.impair import SHARE_ONE
from openmrc.live.datapath.rows import FRAME, HELD_AT
from openmrc.units import NEVER, PS_PER_MS, PS_PER_US
from tests.live.datapath.memory_kernel import Endpoint, endpoint

PACKETS, LENGTH = 40, 100


def arrive(here: Endpoint, **impairments: int) -> None:
    """Put a train of packets on plane 0 into the staging area and impair it."""
    plane, train = here.datapath.planes[0], here.datapath.trains[0]
    plane.impaired, plane.random = True, 12345
    for name, value in impairments.items():
        setattr(plane, name, value)
    here.datapath.staging[: PACKETS * LENGTH] = np.arange(PACKETS * LENGTH) // LENGTH
    train.at, train.length, train.segment, train.plane, train.peer = 0, PACKETS * LENGTH, LENGTH, 0, 1
    train.port, train.entropy, train.tos, train.cut = 5, 6, 7, False
    here.nic.now, here.nic.trains = here.now, 1
    impair.apply(here.datapath, 0)


def lined_up(here: Endpoint) -> list[int]:
    """Return the first byte of every packet that the engine gets now."""
    return [int(here.datapath.staging[here.datapath.trains[index].at]) for index in range(here.nic.trains)]


def test_without_a_share_every_packet_passes_in_order() -> None:
    with endpoint() as here:
        arrive(here)
        assert lined_up(here) == list(range(PACKETS))


def test_a_plane_that_is_down_passes_nothing() -> None:
    with endpoint() as here:
        arrive(here, down=1)
        assert lined_up(here) == []
        assert here.datapath.planes[0].taken == PACKETS


def test_half_the_packets_are_lost_at_a_share_of_one_half() -> None:
    with endpoint() as here:
        arrive(here, loss=SHARE_ONE // 2)
        assert PACKETS // 4 < here.nic.trains < 3 * PACKETS // 4
        assert here.nic.trains + here.datapath.planes[0].taken == PACKETS


def test_duplicates_follow_their_originals() -> None:
    with endpoint() as here:
        arrive(here, duplicate=SHARE_ONE)
        assert lined_up(here) == [number for number in range(PACKETS) for _ in range(2)]


def test_corruption_flips_one_bit_of_each_packet() -> None:
    with endpoint() as here:
        arrive(here, corruption=SHARE_ONE)
        clean = np.arange(PACKETS * LENGTH) // LENGTH
        flipped = np.unpackbits(here.datapath.staging[: PACKETS * LENGTH] ^ clean.astype(np.uint8))
        assert flipped.reshape(PACKETS, -1).sum(axis=1).tolist() == [1] * PACKETS


def test_trimmed_packets_are_marked_for_the_reader() -> None:
    with endpoint() as here:
        arrive(here, trim=SHARE_ONE)
        assert all(here.datapath.trains[index].cut for index in range(PACKETS))


def test_delayed_packets_come_when_they_are_due_in_order() -> None:
    with endpoint() as here:
        arrive(here, slow=1, delay=PS_PER_MS)
        assert (here.nic.trains, here.nic.held) == (0, PACKETS)
        assert impair.next_release(here.datapath) == here.now + PS_PER_MS
        impair.release(here.datapath)
        assert here.nic.trains == 0
        here.nic.now += PS_PER_MS
        impair.release(here.datapath)
        assert lined_up(here) == list(range(PACKETS))
        assert here.datapath.trains[0].at >= HELD_AT
        assert impair.next_release(here.datapath) == NEVER


def test_jitter_changes_the_order_and_loses_nothing() -> None:
    with endpoint() as here:
        arrive(here, slow=1, jitter=PS_PER_MS)
        here.nic.now += PS_PER_MS
        impair.release(here.datapath)
        assert lined_up(here) != sorted(lined_up(here))
        assert sorted(lined_up(here)) == list(range(PACKETS))


def test_a_rate_spaces_packets_and_drops_what_would_wait_too_long() -> None:
    with endpoint() as here:
        arrive(here, slow=1, rate=1_000_000)  # a packet takes 1.4 ms, the queue holds 50 ms
        assert 30 < here.nic.held < PACKETS
        assert here.nic.held + here.datapath.planes[0].taken == PACKETS


def test_packets_beyond_the_heap_or_longer_than_a_frame_are_lost() -> None:
    with endpoint() as here:
        here.nic.held = len(here.datapath.frames)
        arrive(here, slow=1, delay=PS_PER_US)
        assert here.datapath.planes[0].taken == PACKETS
    with endpoint() as here:
        here.datapath.trains[0].plane, here.datapath.trains[0].length = 0, FRAME + 1
        here.nic.now = here.now
        impair._hold(here.datapath, 0, 0)
        assert here.datapath.planes[0].taken == 1
