"""Configuration and counters of a switch port, as in the program `bpf/port.bpf.c`.

Both layouts are those of the C structures, field by field; a test compares them with the C source. Each port has one
entry in both maps; its number is that of its directed link.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from openmrc.fabric.model.port_settings import PortSettings
from openmrc.units import NS_PER_S

OBJECT = Path(__file__).with_name("bpf") / "port.bpf.o"
SOURCE = OBJECT.with_suffix(".c")
SETTINGS_MAP, QUEUE_MAP = "settings", "queue"
MOST_PORTS = 16384  # entries of both maps
SHARE_ONE = 1 << 32
WIRE_OVERHEAD = 24  # bytes: FCS 4, preamble 8, gap 12
_POINT = 1 << 16


def packed(settings: PortSettings) -> bytes:
    """Return `struct configuration`, whose members are in this order."""
    dscp = settings.dscp
    wide = {
        "ns_per_byte": round(8 * NS_PER_S * _POINT / settings.rate) if settings.rate else 0,
        "mark_low": _ns(settings, settings.mark_low),
        "mark_high": _ns(settings, settings.mark_high),
        "trim_above": _ns(settings, settings.trim_above),
        "drop_above": _ns(settings, settings.drop_above),
        "control_drop_above": _ns(settings, settings.control_drop_above),
        "loss": round(settings.loss * SHARE_ONE),
        "random_trim": round(settings.trim * SHARE_ONE),
        "corruption": round(settings.corruption * SHARE_ONE),
    }
    narrow = {
        "down": int(settings.down),
        "last_hop": int(settings.is_last_hop),
        "keep": settings.keep,
        "overhead": WIRE_OVERHEAD,
        "control": dscp.control,
        "trimmable": dscp.trimmable,
        "trimmable_again": dscp.trimmable_again,
        "trimmed": dscp.trimmed,
        "trimmed_last_hop": dscp.trimmed_last_hop,
    }
    return struct.pack(f"={len(wide)}Q{len(narrow)}I4x", *wide.values(), *narrow.values())


def _ns(settings: PortSettings, size: int) -> int:
    return size * 8 * NS_PER_S // settings.rate if settings.rate else 0


@dataclass(frozen=True)
class PortCounters:
    """Counters of a port's program since it came up."""

    packets: int = 0  # that went on to the queue
    wire_bytes: int = 0
    marked: int = 0
    trimmed: int = 0
    dropped: int = 0  # the queue was full
    control_dropped: int = 0  # the first class alone was more than the port carries
    lost: int = 0  # faults
    corrupted: int = 0
    control: int = 0  # packets of the first class
    longest_ns: int = 0  # longest queue that a packet met
    data_lost_at: int = 0  # ns, monotonic clock: when a fault last took a data packet

    SIZE = 104  # bytes of `struct state`
    _SKIPPED = 16  # lock and free_at

    @classmethod
    def unpack(cls, value: bytes) -> PortCounters:
        """Read `struct state`."""
        return cls(*struct.unpack_from("=11Q", value, cls._SKIPPED))

    @property
    def offered(self) -> int:
        """Return how many packets the node gave to this port."""
        return self.packets + self.dropped + self.control_dropped + self.lost
