"""Two captures of the same exchange, packet by packet: what differs, by field and clause.

Packets are aligned by direction, opcode and PSN. Numbers that each connection chooses for itself - QPNs, PSNs,
addresses, keys, timestamps - are compared as distances from the first of their capture, or not at all.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from openmrc.conform.captured import CapturedPacket
from openmrc.wire.codes import Opcode
from openmrc.wire.message import MrcPacket

_RING = 1 << 24
_CHOSEN = frozenset(("dqp", "r_key", "tx_timestamp", "spdcid", "dpdcid", "entropy", "probe_id", "vendor_info"))
_RELATIVE = frozenset(("psn", "cack_psn", "nack_psn"))
CLAUSES: dict[str, str] = tomllib.loads(Path(__file__).with_name("fields.toml").read_text("utf-8"))


@dataclass(frozen=True)
class PacketDifference:
    """What differs between a packet and its counterpart."""

    ours: int | None  # frame in the first capture; None: it has no such packet
    theirs: int | None
    name: str
    fields: tuple[tuple[str, int, int], ...] = ()  # field, in the first, in the second


def differences(ours: Sequence[CapturedPacket], theirs: Sequence[CapturedPacket]) -> Iterator[PacketDifference]:
    """Yield the packets that differ or have no counterpart."""
    first, second = _Side(ours), _Side(theirs)
    matcher = difflib.SequenceMatcher(None, first.keys, second.keys, autojunk=False)
    for kind, begin, end, other, other_end in matcher.get_opcodes():
        if kind == "equal":
            for offset in range(end - begin):
                yield from _compared(first, begin + offset, second, other + offset)
            continue
        for index in range(begin, end):
            yield PacketDifference(first.packets[index].number, None, first.keys[index][1])
        for index in range(other, other_end):
            yield PacketDifference(None, second.packets[index].number, second.keys[index][1])


class _Side:
    """The packets of one capture that could be read, with what they are aligned by."""

    def __init__(self, packets: Sequence[CapturedPacket]) -> None:
        self.packets = [each for each in packets if each.message is not None]
        writes = [message for _, message in self.messages() if message.opcode <= Opcode.WRITE_ONLY_IMM]
        self.first_psn = writes[0].bth.psn if writes else 0
        self.first_va = writes[0].reth.va if writes else 0
        self.keys = [(message.opcode <= Opcode.WRITE_ONLY_IMM, message.opcode.name, self._number(message))
                     for _, message in self.messages()]  # fmt: skip

    def messages(self) -> Iterator[tuple[CapturedPacket, MrcPacket]]:
        return ((each, each.message) for each in self.packets if each.message is not None)

    def value(self, name: str, value: int) -> int:
        """Return a field as it is compared."""
        if name in _RELATIVE:
            return (value - self.first_psn) % _RING
        return value - self.first_va if name == "va" else value

    def _number(self, message: MrcPacket) -> int:
        return (message.bth.psn - self.first_psn) % _RING if message.opcode <= Opcode.WRITE_ONLY_IMM else 0


def _compared(first: _Side, one: int, second: _Side, other: int) -> Iterator[PacketDifference]:
    ours, theirs = first.packets[one].message, second.packets[other].message
    if ours is None or theirs is None:
        return
    found = [("payload", len(ours.payload), len(theirs.payload))] if ours.payload != theirs.payload else []
    for mine, yours in zip(ours.parts, theirs.parts, strict=False):
        for name, value in mine.values.items():
            if name not in _CHOSEN and name in yours.values and not _is_of_control(ours, name):
                here, there = first.value(name, value), second.value(name, yours.values[name])
                if here != there:
                    found.append((f"{mine.header.name}.{name}", here, there))
    if found:
        numbers = first.packets[one].number, second.packets[other].number
        yield PacketDifference(*numbers, ours.opcode.name, tuple(found))


def _is_of_control(message: MrcPacket, name: str) -> bool:
    """Whether a field is the PSN of a packet that has none."""
    return name == "psn" and message.opcode not in (Opcode.ACKNOWLEDGE,) and message.opcode > Opcode.WRITE_ONLY_IMM


def clause_of(field: str) -> str:
    """Return the clause that a field is about."""
    return CLAUSES.get(field.rpartition(".")[2], "wire-layout")
