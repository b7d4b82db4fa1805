"""A writer of Chakra traces, apart from the reader: attributes, nodes and files as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, BARRIER = 0, 2, 5, 6, 7, 9
INT32, INT64, UINT32, UINT64, SINT64, FIXED64 = 7, 9, 11, 13, 17, 21


def varint(value: int) -> bytes:
    made = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def block(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name: str, value: Any, kind: int = INT64) -> bytes:
    made = block(1, name.encode())
    if isinstance(value, str):
        made += block(29, value.encode())
    elif isinstance(value, list):
        made += block(28, block(1, bytes(map(int, value))))
    elif kind == SINT64:
        made += integer(kind, value << 1)
    elif kind == FIXED64:
        made += varint(kind << 3 | 1) + value.to_bytes(8, "little")
    else:
        made += integer(kind, value)
    return block(10, made)


def node(
    identity: int, kind: int, waits: tuple[int, ...] = (), micros: int = 0, name: str = "", attributes: bytes = b"",
    packed: bool = True,
) -> bytes:  # fmt: skip
    made = integer(1, identity) if identity else b""
    made += block(2, name.encode()) + integer(3, kind)
    if packed and waits:
        made += block(5, b"".join(map(varint, waits)))
    elif waits:
        made += b"".join(integer(4, each) for each in waits)
    return made + (integer(7, micros) if micros else b"") + attributes


def collective(
    identity: int, kind: int, size: int, waits: tuple[int, ...] = (), integers: int = INT64, **more: Any
) -> bytes:
    given = {"comm_type": kind, "comm_size": size, **more}
    return node(identity, COLLECTIVE, waits, name=f"collective {identity}",
                attributes=b"".join(attribute(name, value, integers) for name, value in given.items()))  # fmt: skip


def send(identity: int, to: int, size: int, waits: tuple[int, ...] = (), tag: int = 0) -> bytes:
    given = {"comm_dst": to, "comm_size": size, "comm_tag": tag}
    return node(identity, SEND, waits, attributes=b"".join(attribute(name, value) for name, value in given.items()))


def receive(identity: int, source: int, size: int, waits: tuple[int, ...] = (), tag: int = 0) -> bytes:
    given = {"comm_src": source, "comm_size": size, "comm_tag": tag}
    return node(identity, RECEIVE, waits, attributes=b"".join(attribute(name, value) for name, value in given.items()))


def file_of(nodes: list[bytes], version: str = "0.0.4") -> bytes:
    return b"".join(varint(len(each)) + each for each in [block(1, version.encode()), *nodes])


def write(folder: Path, ranks: list[list[bytes]], name: str = "trace") -> Path:
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(file_of(nodes))
    return folder / name
