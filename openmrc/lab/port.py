"""A switch port as the program in `bpf/port.bpf.c` knows it: what it is told, and what it has counted.

Both layouts are those of the C structures, field by field; a test compares them with the C text.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from pathlib import Path

OBJECT = Path(__file__).with_name("bpf") / "port.bpf.o"
SOURCE = OBJECT.with_suffix(".c")
SETTINGS_MAP, QUEUE_MAP = "settings", "queue"
SHARE_ONE = 1 << 32
WIRE_OVERHEAD = 24  # bytes: FCS 4, preamble 8, gap 12
_POINT = 1 << 16
_NS = 1_000_000_000
_WORDS64 = (
    "ns_per_byte", "mark_low", "mark_high", "trim_above", "drop_above", "loss", "random_trim", "corruption",
)  # fmt: skip
_WORDS32 = (
    "down", "last_hop", "keep", "overhead",
    "control", "trimmable", "trimmable_again", "trimmed", "trimmed_last_hop",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Dscp:
    """Number the classes of service; MRC leaves the numbers to the operator (section 3.12), these are common ones."""

    control: int = 46
    trimmable: int = 4
    trimmable_again: int = 8
    trimmed: int = 12
    trimmed_last_hop: int = 16


@dataclass(frozen=True, kw_only=True)
class PortSettings:
    """Say what a port does with packets: thresholds in bytes of queue, shares of packets 0 to 1."""

    rate: int  # bit/s; 0: no virtual queue
    mark_low: int = 0  # from here on some are marked,
    mark_high: int = 0  # and from here on all; 0: none
    trim_above: int = 0  # 0: never
    drop_above: int = 0  # 0: never
    is_last_hop: bool = False
    keep: int = 64  # bytes after the IPv6 header: UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, and 20 to spare
    dscp: Dscp = Dscp()
    down: bool = False
    loss: float = 0.0
    trim: float = 0.0
    corruption: float = 0.0

    def packed(self) -> bytes:
        """Return `struct configuration`."""
        values = {
            "ns_per_byte": round(8 * _NS * _POINT / self.rate) if self.rate else 0,
            "mark_low": self._ns(self.mark_low),
            "mark_high": self._ns(self.mark_high),
            "trim_above": self._ns(self.trim_above),
            "drop_above": self._ns(self.drop_above),
            "loss": round(self.loss * SHARE_ONE),
            "random_trim": round(self.trim * SHARE_ONE),
            "corruption": round(self.corruption * SHARE_ONE),
            "down": int(self.down),
            "last_hop": int(self.is_last_hop),
            "keep": self.keep,
            "overhead": WIRE_OVERHEAD,
            **{each.name: getattr(self.dscp, each.name) for each in fields(self.dscp)},
        }
        wide = [values[name] for name in _WORDS64]
        narrow = [values[name] for name in _WORDS32]
        return struct.pack(f"={len(_WORDS64)}Q{len(_WORDS32)}I4x", *wide, *narrow)

    def _ns(self, size: int) -> int:
        return size * 8 * _NS // self.rate if self.rate else 0


@dataclass(frozen=True)
class PortCounters:
    """What a port has counted since it came up."""

    packets: int = 0
    wire_bytes: int = 0
    marked: int = 0
    trimmed: int = 0
    dropped: int = 0  # the queue was full
    lost: int = 0  # faults
    corrupted: int = 0
    control: int = 0  # packets of the first class
    longest_ns: int = 0  # longest queue that a packet met

    data_lost_at: int = 0  # ns, monotonic clock: when a fault last took a data packet

    SIZE = 96  # bytes of `struct state`
    _SKIPPED = 16  # lock and free_at

    @classmethod
    def unpack(cls, value: bytes) -> PortCounters:
        """Read `struct state`."""
        return cls(*struct.unpack_from("=10Q", value, cls._SKIPPED))
