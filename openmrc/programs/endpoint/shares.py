"""Payload per plane in a span of time, and the state of the paths at its end."""

from collections.abc import Sequence

import msgspec

from openmrc.verbs import Context, PlaneCounters, QueuePair


class PlaneShare(msgspec.Struct, kw_only=True):
    """Payload and paths of one plane."""

    plane: int  # from 0
    address: str  # local address
    sent_packets: int
    sent_bytes: int  # payload, retransmissions included
    received_packets: int
    received_bytes: int
    share: float  # of the payload of all planes, both directions, 0..1
    retransmitted: int
    lost: int
    marked: int
    trimmed: int
    silences: int = 0  # times that a queue pair found the plane silent
    evs: dict[str, int] = msgspec.field(default_factory=dict)  # EV state, or SILENT: number of EVs in it at the end


def ev_counts(pairs: Sequence[QueuePair]) -> list[dict[str, int]]:
    """Return per plane how many EVs are in which state, or SILENT, over all queue pairs."""
    if not pairs:
        return []
    counts: list[dict[str, int]] = [{} for _ in pairs[0].context.query_device().planes]
    for pair in pairs:
        for each in pair.ev_states():
            of_plane = counts[each.plane]
            of_plane[each.label] = of_plane.get(each.label, 0) + 1
    return counts


class Meter:
    """Counts from the moment it is created."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before = context.plane_counters()

    def shares(self, pairs: Sequence[QueuePair] = ()) -> list[PlaneShare]:
        """Return the payload per plane since then."""
        after = self._context.plane_counters()
        states = ev_counts(pairs) or [{} for _ in after]
        moved = [_moved(now) - _moved(before) for now, before in zip(after, self._before, strict=True)]
        total = sum(moved) or 1
        return [
            _share(now, before, carried / total, evs)
            for now, before, carried, evs in zip(after, self._before, moved, states, strict=True)
        ]


def _moved(counters: PlaneCounters) -> int:
    return counters.sent_bytes + counters.received_bytes


def _share(now: PlaneCounters, before: PlaneCounters, share: float, evs: dict[str, int]) -> PlaneShare:
    counted = ("sent_packets", "sent_bytes", "received_packets", "received_bytes", "retransmitted")
    noted = ("lost", "marked", "trimmed", "silences")
    difference = {name: getattr(now, name) - getattr(before, name) for name in (*counted, *noted)}
    return PlaneShare(plane=now.plane, address=now.address, share=round(share, 4), evs=evs, **difference)
