"""Captured packets as pcapng blocks in a ring."""

from __future__ import annotations

import io

import numpy as np
import pytest

from openmrc.live.attributes import PeerAddress
from openmrc.live.datapath.packets import capture
from openmrc.live.host.recording import OpenCapture
from openmrc.wire.ip import IPV4_LENGTH, UDP_LENGTH, checksum
from openmrc.wire.pcapng import PcapFrame, PcapngWriter, read_frames
from tests.live.datapath.memory_kernel import THERE, Endpoint, endpoint
from tests.worlds.live import address


def prepare(here: Endpoint, tmp_path: object = None) -> None:
    recording = OpenCapture("/dev/null", here.runtime)
    recording.add_peer(0, PeerAddress(planes=tuple(str(address(THERE, plane)) for plane in range(2))))


def frames_of(here: Endpoint) -> list[PcapFrame]:
    """Return the frames of the ring, which has not wrapped around."""
    file = io.BytesIO()
    PcapngWriter(file, ["plane 0", "plane 1"])
    file.write(np.asarray(here.datapath.captured)[: here.datapath.capture[0].tail].tobytes())
    file.seek(0)
    return list(read_frames(file))


@pytest.mark.parametrize("last", [10, 904])
def test_a_sent_packet_is_captured_as_it_left(last: int) -> None:
    with endpoint(capturing=True) as here:
        prepare(here)
        here.submit_write(4 * 1024 + last)
        here.iterate()
        frames = frames_of(here)
        assert [frame.data[IPV4_LENGTH + UDP_LENGTH :] for frame in frames] == [each.body for each in here.kernel.sent]
        assert here.datapath.capture[0].packets == len(frames) == 5
        assert all(checksum(frame.data[:IPV4_LENGTH]) == 0 for frame in frames)
        assert {frame.interface for frame in frames} == {"plane 0", "plane 1"}


def test_the_time_of_a_packet_is_the_wall_clocks() -> None:
    with endpoint(capturing=True) as here:
        prepare(here)
        here.datapath.capture[0].clock = 1_700_000_000 * 10**9
        here.submit_write(8)
        here.iterate()
        assert frames_of(here)[0].time_ns == 1_700_000_000 * 10**9 + here.now // 1000


@pytest.mark.parametrize("free", [0, 100])
def test_a_packet_that_does_not_fit_is_counted_as_lost(free: int) -> None:
    with endpoint(capturing=True) as here:
        prepare(here)
        here.datapath.capture[0].tail = capture.RING - free
        assert capture._begin(here.datapath, 0, 0, 1, 1, 0, 1000) == capture.NO_ROOM
        assert here.datapath.capture[0].lost == 1


def test_a_block_across_the_end_of_the_ring_continues_at_its_beginning() -> None:
    with endpoint(capturing=True) as here:
        prepare(here)
        begin = capture.RING - 64
        here.datapath.capture[0].head = here.datapath.capture[0].tail = begin
        here.submit_write(1024)
        here.iterate()
        ring, length = np.asarray(here.datapath.captured), here.datapath.capture[0].tail - begin
        whole = ring[begin : begin + length].tobytes()
        assert ring[: length - 64].tobytes() == whole[64:]
