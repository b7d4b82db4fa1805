"""The table of headers, frozen into small constant arrays that compiled code can walk.

Headers are whole 32-bit words. A *step* moves some bits between a column of the packet's row and a
word; a field that crosses a word boundary is two steps. Each opcode, with and without TSETH, has a
run of steps out and a run of steps in. All rows are eight numbers wide and flat: walking nested
runs (words, then fields) took three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_type_hints

import numpy as np
from numpy.typing import NDArray

from openmrc.wire.codes import Opcode
from openmrc.wire.headers import BTH, NEEDED_OF_A_TRIMMED_PACKET, STACKS, WITH_PAYLOAD, Field, Header, length, stack
from openmrc.wire.packet import Packet

Matrix = NDArray[np.int64]

COLUMN = {name: index for index, name in enumerate(get_type_hints(Packet))}
WORD = 32  # bits
ICRC_LENGTH = 4
LONGEST_HEADER = max(length(headers) for headers in STACKS.values())  # bytes


@dataclass(frozen=True)
class Piece:
    """The bits of one field that lie in one word."""

    field: Field
    byte: int  # of the word, from the start of BTH
    word_shift: int  # how far up in the word they are
    value_shift: int  # how far up in the field's value they are
    width: int

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1

    @property
    def constant(self) -> int:
        """What this piece adds to an outgoing word, whatever the row says."""
        return ((self.field.sends or 0) >> self.value_shift & self.mask) << self.word_shift

    def step_out(self, last: bool) -> tuple[int, ...]:
        moves = bool(self.field.column) and self.field.sends is None
        column, mask = (COLUMN[self.field.column], self.mask) if moves else (0, 0)
        return column, self.value_shift, mask, self.word_shift, self.constant, int(last), 0, 0

    def step_in(self, first: bool) -> tuple[int, ...]:
        top = self.value_shift + self.width == self.field.width
        has_sign = top and (self.field.signed or self.field.width == 64)  # columns are signed 64-bit patterns
        sign = 1 << (self.width - 1) if has_sign else 0
        column = COLUMN[self.field.column]
        return column, self.value_shift, self.mask, self.word_shift, sign, int(top), self.byte, int(first)


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


_RESERVED = Field("reserved", 0, WORD, "a word that holds nothing")


def _steps(headers: tuple[Header, ...]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the steps out, which touch every word, and the steps in, which touch what the engine needs."""
    outward: list[tuple[int, ...]] = []
    inward: list[tuple[int, ...]] = []
    pieces = list(_pieces(headers))
    for byte in range(0, length(headers), 4):
        here = [piece for piece in pieces if piece.byte == byte] or [Piece(_RESERVED, byte, 0, 0, WORD)]
        outward += [piece.step_out(last=piece is here[-1]) for piece in here]
        needed = [piece for piece in here if piece.field.column]
        inward += [piece.step_in(first=piece is needed[0]) for piece in needed]
    return outward, inward


def program(opcode: int, timestamped: int) -> int:
    """Return the row of `PROGRAMS` for an opcode of MRC's group."""
    return (opcode & 31) * 2 + timestamped


def _needed_if_trimmed(opcode: Opcode, headers: tuple[Header, ...]) -> int:
    if opcode not in WITH_PAYLOAD:  # control packets are never trimmed; were one, it would be needed whole
        return length(headers)
    return length(tuple(header for header in headers if header in NEEDED_OF_A_TRIMMED_PACKET))


def _freeze() -> tuple[Matrix, Matrix, Matrix]:
    programs = np.zeros((64, 8), np.int64)
    outward: list[tuple[int, ...]] = []
    inward: list[tuple[int, ...]] = []
    for opcode in STACKS:
        for timestamped in (False, True):
            headers = stack(opcode, timestamped)
            out, in_ = _steps(headers)
            runs = (len(outward), len(outward) + len(out), len(inward), len(inward) + len(in_))
            facts = (length(headers), _needed_if_trimmed(opcode, headers), int(opcode in WITH_PAYLOAD), 0)
            programs[program(opcode, int(timestamped))] = runs + facts
            outward += out
            inward += in_
    return programs, np.array(outward, np.int64), np.array(inward, np.int64)


def place(header: Header, name: str) -> tuple[int, int, int]:
    """Return (byte, shift, mask) of a field that lies within one byte."""
    field = header.field(name)
    return field.offset // 8, -(field.offset + field.width) % 8, (1 << field.width) - 1


# PROGRAMS: steps out from, to, steps in from, to, header bytes (0: unknown opcode), bytes needed of a
# trimmed packet, may have payload. STEPS_OUT: column, value shift, mask, word shift, constant, 1 if the
# word is complete. STEPS_IN: column, value shift, mask, word shift, sign bit, 1 if these are the column's
# highest bits (which replace what it held), byte of the word, 1 if the word must be fetched.
PROGRAMS, STEPS_OUT, STEPS_IN = _freeze()

for _array in (PROGRAMS, STEPS_OUT, STEPS_IN):
    _array.setflags(write=False)

BTH_LENGTH = BTH.size
