"""Generates straight-line code for kernels from the table of headers.

Headers are whole 32-bit words. Each stack of headers that an opcode can have, with and without TSETH,
becomes two functions: one composes each word of the headers from the columns of a packet row, the other extracts each
field from the eight bytes that end with it (or from the first eight). Interpreting the table at run time took seven to
nine times as long (`bench/wire/codec.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import kernel
from openmrc.core.memory import load_be64, store_be32
from openmrc.wire.codes import Opcode
from openmrc.wire.headers import (
    BTH,
    NEEDED_OF_A_TRIMMED_PACKET,
    STACKS,
    WITH_PAYLOAD,
    Header,
    HeaderField,
    length,
    stack,
)
from openmrc.wire.packet import Packet

Matrix = NDArray[np.int64]

COLUMN = {name: index for index, name in enumerate(get_type_hints(Packet))}
WORD = 32  # bits
LOADED = 8  # bytes out of which a field is taken
ICRC_LENGTH = 4
LONGEST_HEADER = max(length(headers) for headers in STACKS.values())  # bytes


@dataclass(frozen=True)
class Piece:
    """The bits of a field within one word."""

    field: HeaderField
    byte: int  # of the word, from the start of BTH
    word_shift: int  # shift in the word
    value_shift: int  # shift in the value of the field
    width: int

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1

    @property
    def code(self) -> str:
        """Return the expression for these bits in an outgoing word."""
        if self.field.column and self.field.sends is None:
            return f"(row[{COLUMN[self.field.column]}] >> {self.value_shift} & {self.mask:#x}) << {self.word_shift}"
        return f"{((self.field.sends or 0) >> self.value_shift & self.mask) << self.word_shift:#x}"


def _pieces(headers: tuple[Header, ...]) -> Iterator[Piece]:
    start = 0  # bits
    for header in headers:
        for field in header.fields:
            begin, end = start + field.offset, start + field.offset + field.width
            while begin < end:
                stop = min(end, (begin // WORD + 1) * WORD)
                yield Piece(field, begin // WORD * 4, -stop % WORD, end - stop, stop - begin)
                begin = stop
        start += header.size * 8


def _writer(name: str, headers: tuple[Header, ...]) -> list[str]:
    """Return the code of a function that writes these headers at the address `to`."""
    text: dict[int, list[str]] = {byte: [] for byte in range(0, length(headers), 4)}
    for piece in _pieces(headers):
        text[piece.byte].append(piece.code)
    lines = [f"    store_be32(to + {byte}, {' | '.join(pieces or ['0'])})" for byte, pieces in text.items()]
    return [f"def {name}(to, row):", *lines]


def _reader(name: str, headers: tuple[Header, ...]) -> list[str]:
    """Return the code of a function that reads what the engine needs of these headers at the address `bth`.

    It stops before the first field that does not end within `length` bytes: a switch has trimmed the rest.
    """
    lines, checked, start = [f"def {name}(bth, length, row):"], BTH.size, 0
    for header in headers:
        for field in header.fields:
            end = start * 8 + field.offset + field.width  # bits
            last = -(-end // 8)
            if field.column and last > checked:
                lines.append(f"    if length < {last}:\n        return")
                checked = last
            if field.column:
                lines.append(f"    row[{COLUMN[field.column]}] = {_taken(field, max(last - LOADED, 0), end)}")
        start += header.size
    return lines


def _taken(field: HeaderField, byte: int, end: int) -> str:
    """Return the expression for a field that ends at bit `end`, out of the eight bytes from `byte` on."""
    shift = (byte + LOADED) * 8 - end
    if shift + field.width > LOADED * 8:
        raise ValueError(f"{field.name}: its {field.width} bits do not lie in {LOADED} bytes")
    loaded = f"load_be64(bth + {byte})"
    if field.width == LOADED * 8:
        return loaded  # columns are signed 64-bit patterns
    bits = f"{loaded} >> {shift} & {(1 << field.width) - 1:#x}"
    sign = 1 << (field.width - 1)
    return f"(({bits}) ^ {sign:#x}) - {sign:#x}" if field.signed else bits


def program(opcode: int, timestamped: int) -> int:
    """Return the row of `PROGRAMS` for an opcode of MRC's group."""
    return (opcode & 31) * 2 + timestamped


def _needed_if_trimmed(opcode: Opcode, headers: tuple[Header, ...]) -> int:
    if opcode not in WITH_PAYLOAD:  # control packets are never trimmed: all bytes are needed
        return length(headers)
    return length(tuple(header for header in headers if header in NEEDED_OF_A_TRIMMED_PACKET))


def _doors(kinds: int) -> list[str]:
    """Return the code of the two functions that dispatch by kind."""
    lines = []
    for door, arguments in (("write", "to, row"), ("read", "bth, length, row")):
        lines.append(f"def {door}(kind, {arguments}):")
        for kind in range(kinds):
            lines.append(f"    {'elif' if kind else 'if'} kind == {kind}:\n        {door}_{kind}({arguments})")
    return lines


def _unroll() -> tuple[Matrix, Callable[..., None], Callable[..., None]]:
    """Return the properties of each program, and the functions that write and read headers by kind."""
    programs = np.zeros((64, 4), np.int64)
    kinds: dict[tuple[Header, ...], int] = {}
    names: dict[str, Any] = {"load_be64": load_be64, "store_be32": store_be32}
    for opcode in STACKS:
        for timestamped in (False, True):
            headers = stack(opcode, timestamped)
            kind = kinds.setdefault(headers, len(kinds))
            facts = (kind, length(headers), _needed_if_trimmed(opcode, headers), int(opcode in WITH_PAYLOAD))
            programs[program(opcode, int(timestamped))] = facts
    for headers, kind in kinds.items():
        _define([*_writer(f"write_{kind}", headers), *_reader(f"read_{kind}", headers)], names)
    _define(_doors(len(kinds)), names)
    programs.setflags(write=False)
    return programs, names["write"], names["read"]


def _define(lines: list[str], names: dict[str, Any]) -> None:
    """Execute this code with the globals `names`, to which it adds its kernels."""
    known = set(names)
    exec("\n".join(lines), names)  # generated above from the table of headers
    for name in set(names) - known - {"__builtins__"}:
        names[name] = kernel(names[name])


def place(header: Header, name: str) -> tuple[int, int, int]:
    """Return (byte, shift, mask) of a field that lies within one byte."""
    field = header.field(name)
    return field.offset // 8, -(field.offset + field.width) % 8, (1 << field.width) - 1


# PROGRAMS: kind, header bytes (0: unknown opcode), bytes needed of a trimmed packet, may have payload.
# write_headers(kind, to, row) and read_headers(kind, bth, length, row): from and to a row of columns.
PROGRAMS, write_headers, read_headers = _unroll()

BTH_LENGTH = BTH.size
