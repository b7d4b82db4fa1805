import contextlib
import io
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import Malformed, Truncated, WireError
from openmrc.wire.pcapng import LONGEST_BLOCK, SNAPLEN, LinkType, PcapFrame, PcapngWriter, read_frames

from .packets import repeatable

NOW = 1_700_000_000_123_456_789


def written(frames: Sequence[Any], interfaces: Sequence[str] = ("plane0", "plane1"), **options: Any) -> bytes:
    file = io.BytesIO()
    writer = PcapngWriter(file, interfaces, **options)
    for frame in frames:
        writer.write(*frame)
    return file.getvalue()


def read(data: bytes) -> list[PcapFrame]:
    return list(read_frames(io.BytesIO(data)))


@repeatable
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2**63), st.binary(max_size=40), st.text(max_size=9))))
def test_frames_come_back_with_interface_and_nanoseconds(frames: Any) -> None:
    found = read(written(frames, link_type=LinkType.ETHERNET))
    assert [(f"plane{i}", time, data) for i, time, data, _ in frames] == [
        (frame.interface, frame.time_ns, frame.data) for frame in found
    ]
    assert [frame.number for frame in found] == list(range(1, len(frames) + 1))
    assert all(frame.link_type == LinkType.ETHERNET for frame in found)


def test_a_frame_longer_than_the_snap_length_keeps_its_original_length() -> None:
    (frame,) = read(written([(0, NOW, bytes(SNAPLEN + 5))]))
    assert (len(frame.data), frame.original_length) == (SNAPLEN, SNAPLEN + 5)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "tick"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_classic_pcap_in_both_byte_orders_and_resolutions(order: str, magic: int, tick: int) -> None:
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, LinkType.RAW)
    data += struct.pack(order + "IIII", 1_700_000_000, 5, 3, 1500) + b"abc"
    (frame,) = read(data)
    assert (frame.time_ns, frame.data, frame.original_length) == (1_700_000_000 * 10**9 + 5 * tick, b"abc", 1500)
    assert frame.link_type == LinkType.RAW


def block(kind: int, body: bytes, order: str = ">") -> bytes:
    body += bytes(-len(body) % 4)
    length = len(body) + 12
    return struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", length)


SECTION = block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))


def test_big_endian_sections_binary_ticks_offsets_and_unknown_blocks() -> None:
    options = struct.pack(">HHB3x", 9, 1, 0x80 | 10) + struct.pack(">HHq", 14, 8, -1) + struct.pack(">HH", 0, 0)
    data = SECTION + block(1, struct.pack(">HHI", 1, 0, 0) + options) + block(0xBAD, b"whatever")
    data += block(6, struct.pack(">IIIII", 0, 0, 3 * 1024 + 512, 2, 2) + b"hi") + block(3, struct.pack(">I", 2) + b"yo")
    first, second = read(data)
    assert (first.time_ns, first.data, first.interface) == (2_500_000_000, b"hi", "if0")
    assert (second.time_ns, second.data, second.number) == (0, b"yo", 2)


GOOD = written([(0, NOW, b"abcd")])


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", Truncated, "capture file"),
        (b"GIF8", Malformed, "neither pcapng nor pcap"),
        (GOOD[:-1], Truncated, "block"),
        (GOOD[:20], Truncated, "section header"),
        (SECTION + struct.pack(">II", 6, LONGEST_BLOCK + 16), Malformed, "longer than"),
        (SECTION + struct.pack(">II", 6, 0xFFFFFFFC), Malformed, "longer than"),
        (SECTION + struct.pack(">II", 6, 8), Malformed, "bad block length"),
        (SECTION + block(5, b"abcd")[:-4] + bytes(4), Malformed, "lengths differ"),
        (SECTION + block(6, bytes(20)), Malformed, "not described"),
        (SECTION + block(1, b""), Truncated, "interface"),
        (SECTION + block(1, bytes(8)) + block(6, struct.pack(">IIIII", 0, 0, 0, 9, 9)), Malformed, "longer than its"),
        (SECTION + block(1, bytes(8) + struct.pack(">HH", 2, 9)), Truncated, "option"),
        (
            struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 9, 1) + struct.pack("<IIII", 0, 0, 2**31, 9),
            Malformed,
            "longer",
        ),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 9, 1) + bytes(3), Truncated, "packet header"),
    ],
)
def test_damaged_files_are_refused_before_anything_is_allocated(data: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        read(data)


@repeatable
@given(st.data())
def test_any_damage_to_a_file_is_a_wire_error_or_frames(data: st.DataObject) -> None:
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        assert len(read(bytes(damaged))) <= 1
