"""Capture files: every packet, or the number of those that are missing."""

from __future__ import annotations

import gc
import resource
import time
from pathlib import Path

import pytest

from harness.live_pair import SMALL, Pair, addresses, joined
from openmrc.errors import ConfigError
from openmrc.live.host.addresses import PlaneAddress
from openmrc.verbs import Context
from openmrc.wire.capture import dissect, find_datagram
from openmrc.wire.codes import Opcode
from openmrc.wire.ip import IPV4_LENGTH, checksum
from openmrc.wire.pcapng import PcapFrame, read_frames

DATA = {Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY}


def frames_of(file: Path) -> list[PcapFrame]:
    with file.open("rb") as stream:
        return list(read_frames(stream))


def write_all(pair: Pair, times: int) -> None:
    for _ in range(times):
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=60)


@pytest.mark.parametrize("family", [4, 6])
def test_a_capture_holds_every_packet_of_every_connection_whole(tmp_path: Path, family: int) -> None:
    file = tmp_path / "all.pcapng"
    with joined(capture=file, size=1 << 19, family=family) as pair:
        write_all(pair, 3)
        for end in pair.ends:
            end.close()  # the peer is forgotten long before the file is
        context = pair.contexts[0]
        context.close()
        time.sleep(0.2)  # what was sent last is in the peer's socket
        arrived = [sum(row.arrived for row in each.nic.runtime.datapath.planes) for each in pair.contexts]
        arrived[1] += pair.contexts[1].nic.runtime.nic.unknown_source  # after the connection was closed
        report = context.capture_report()
    assert report is not None
    assert report.is_complete
    frames = frames_of(file)
    assert report.packets == len(frames)
    left, data = 0, 0
    for frame in frames:
        if family == 4:
            assert checksum(frame.data[:IPV4_LENGTH]) == 0
        datagram = find_datagram(frame)
        assert datagram is not None
        dissected = dissect(frame, datagram)
        assert dissected.icrc_ok
        planes = zip(context.address.planes, context.address.source_ports, strict=True)
        left += any(
            PlaneAddress.parse(address).ip == datagram.ip.source and datagram.udp.source_port in ports
            for address, ports in planes
        )
        data += dissected.message.opcode in DATA
    assert [len(frames) - left, left] == arrived
    assert data >= 3 * (1 << 19) // 4096
    times = [frame.time_ns for frame in frames]
    assert times == sorted(times)


@pytest.mark.needs("jit")  # 40,000 packets
def test_a_capture_larger_than_its_ring_is_complete_too(tmp_path: Path) -> None:
    file = tmp_path / "large.pcapng"
    with joined(capture=file, size=1 << 22) as pair:
        write_all(pair, 40)
        pair.contexts[0].close()
        report = pair.contexts[0].capture_report()
    assert report is not None
    assert report.is_complete
    assert file.stat().st_size > 150 << 20  # the ring wrapped around twice
    assert report.packets == len(frames_of(file))


def test_a_full_disk_ends_the_capture_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "full.pcapng"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with joined(capture=file, size=1 << 20) as pair:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
        try:
            write_all(pair, 4)
            pair.contexts[0].close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        report = pair.contexts[0].capture_report()
    assert report is not None
    assert report.error == "File too large"
    assert not report.is_complete
    frames = frames_of(file)  # raises if the file ends within a packet
    assert report.packets == len(frames) > 100
    assert report.lost + report.packets >= 4 * (1 << 20) // 4096


def test_a_capture_that_cannot_be_written_is_refused_and_leaks_nothing(tmp_path: Path) -> None:
    where = addresses(0, 232, 1, 4)
    for file in (tmp_path / "no" / "such.pcapng", Path("/dev/full")):
        gc.collect()
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(ConfigError, match=str(file)):
            Context(where, SMALL, capture=file)
        gc.collect()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    Context(where, SMALL).close()
