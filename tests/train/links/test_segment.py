from __future__ import annotations

import os

import numpy as np
import pytest

from openmrc.train.links.segment import OutgoingSegment, SegmentError, map_incoming

SIZE = 8192


def test_what_one_end_writes_the_other_reads_and_cannot_write() -> None:
    segment = OutgoingSegment(SIZE)
    incoming = map_incoming(os.dup(segment.descriptor), SIZE)
    segment.bytes[5] = 7
    assert incoming[5] == 7
    with pytest.raises(ValueError, match="read-only"):
        incoming[5] = 8


def test_a_segment_outlives_its_writer() -> None:
    segment = OutgoingSegment(SIZE)
    incoming = map_incoming(os.dup(segment.descriptor), SIZE)
    segment.bytes[:] = 3
    segment.close()
    del segment
    assert (incoming == 3).all()


def test_a_mapping_keeps_no_descriptor_and_is_given_back_with_its_array() -> None:
    def mappings() -> int:
        with open("/proc/self/maps") as maps:
            return sum("memfd:openmrc" in line for line in maps)

    before, descriptors = mappings(), len(os.listdir("/proc/self/fd"))
    segment = OutgoingSegment(SIZE)
    incoming = map_incoming(os.dup(segment.descriptor), SIZE)
    segment.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    view = incoming.data[5:6]
    assert mappings() == before + 2
    del segment, incoming
    assert mappings() == before + 1
    assert view[0] == 0
    del view
    assert mappings() == before


def test_a_segment_can_not_be_truncated() -> None:
    segment = OutgoingSegment(SIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(segment.descriptor, 0)


def test_a_segment_of_another_size_is_refused() -> None:
    with pytest.raises(SegmentError, match="8192 bytes, expected 16384"):
        map_incoming(os.dup(OutgoingSegment(SIZE).descriptor), 2 * SIZE)


def test_a_segment_that_its_maker_could_truncate_is_refused() -> None:
    descriptor = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, SIZE)
    with pytest.raises(SegmentError, match="not sealed"):
        map_incoming(descriptor, SIZE)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_a_file_of_another_user_or_kind_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    path = f"{tmp_path}/file"
    np.zeros(SIZE, np.uint8).tofile(path)
    with pytest.raises(SegmentError, match="Invalid argument"):
        map_incoming(os.open(path, os.O_RDONLY), SIZE)
    descriptor = os.dup(OutgoingSegment(SIZE).descriptor)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(SegmentError, match="this process runs as 4711"):
        map_incoming(descriptor, SIZE)
