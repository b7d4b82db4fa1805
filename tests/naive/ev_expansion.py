"""EV expansion in the plainest way: everything is a string of 0s and 1s, read and written from the left."""

from collections.abc import Sequence

Field = tuple[int, int, int]  # width, init_val, mask


def expand(widths: Sequence[int], fields: Sequence[Field], ev: bytes) -> bytes:
    unread = bits_of(ev)
    written = ""
    for format_width, (width, init_val, mask) in zip(widths, fields, strict=False):
        value = ""
        for initial, masked in zip(binary(init_val, width), binary(mask, width), strict=True):
            if masked == "1":
                value, unread = value + unread[0], unread[1:]
            else:
                value += initial
        written += "0" * (format_width - width) + value
    assert "1" not in unread
    return int(written.ljust(256, "0"), 2).to_bytes(32, "big")


def bits_of(data: bytes) -> str:
    return "".join(binary(byte, 8) for byte in data)


def binary(number: int, width: int) -> str:
    return format(number, f"0{width}b")
