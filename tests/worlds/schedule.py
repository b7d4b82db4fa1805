"""A schedule: what one endpoint was asked, in order, with its inputs and its answers; and what must be equal after it.

Inputs are the world's: time, packets that arrived, posts, which ports were free. Answers are the engine's: packets,
completions, events, and every row of its tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openmrc.core.rows import table
from openmrc.engine.state.tables import Engine, WriteRequest
from openmrc.wire.codec import as_matrix, datagram_length, encode
from openmrc.wire.codes import Trim
from openmrc.wire.layout import COLUMN, LONGEST_HEADER
from openmrc.wire.packet import Packet

RING_SLACK = ("packets",)  # tables that belong to the world
REQUEST = tuple(WriteRequest.__annotations__)
ADDRESSES = {"messages": ("local",), "regions": ("local",)}  # fields that hold a world's own addresses


@dataclass
class Step:
    """One call of a door."""

    door: str
    now: int  # ps
    given: dict[str, Any] = field(default_factory=dict)
    answer: Any = None


@dataclass
class Schedule:
    """What happened to one endpoint from a copied state on."""

    endpoint: int
    before: Engine  # the tables as they were
    steps: list[Step] = field(default_factory=list)
    after: Engine | None = None

    def doors(self) -> dict[str, int]:
        """Count the calls of each door."""
        names = [step.door for step in self.steps]
        return {name: names.count(name) for name in sorted(set(names))}

    def sent(self) -> list[dict[str, int]]:
        return [step.answer for step in self.steps if step.door == "next_packet" and step.answer]


def copied(engine: Engine) -> Engine:
    """Return tables of their own with the same rows."""
    return Engine(*(np.asarray(rows).copy() for rows in engine))


def columns_of(rows: Any, index: int) -> dict[str, int]:
    """Return a row of any table as plain numbers."""
    record = np.asarray(rows)[index]
    return {name: record[name].item() for name in record.dtype.names}


def headers_of(packet: dict[str, int]) -> bytes:
    """Return the bytes that the wire carries of a packet, payload and ICRC aside."""
    room = np.zeros(LONGEST_HEADER, np.uint8)
    return room[: encode(as_matrix(as_rows(packet)), 0, room, 0)].tobytes()


def length_of(packet: dict[str, int]) -> int:
    return datagram_length(as_matrix(as_rows(packet)), 0)


def as_rows(packet: dict[str, int]) -> Any:
    rows = table(Packet, 1)
    for name in COLUMN:
        setattr(rows[0], name, packet[name])
    return rows


TRAVELS = ("entropy", "port", "destination", "traffic_class")  # what a packet asks of the network, besides its headers


def decision(packet: dict[str, int]) -> tuple[Any, ...]:
    """Return everything that leaves with a packet."""
    return headers_of(packet), packet["payload_length"], *(packet[name] for name in TRAVELS)


def is_whole(packet: dict[str, int]) -> bool:
    return packet["trimmed"] == Trim.WHOLE


def differences(one: Engine, other: Engine, endpoint: int) -> Iterator[str]:
    """Name every field of the endpoint's rows that differs, addresses of the worlds' own memory aside."""
    for name, rows in owned(one, endpoint).items():
        mine, theirs = np.asarray(getattr(one, name))[rows], np.asarray(getattr(other, name))[rows]
        for column in mine.dtype.names:
            if column not in ADDRESSES.get(name, ()) and not np.array_equal(mine[column], theirs[column]):
                at = int(np.argwhere(mine[column] != theirs[column])[0][0])
                yield f"{name}[{rows[at]}].{column}: {mine[column][at]} and {theirs[column][at]}"


def owned(engine: Engine, endpoint: int) -> dict[str, Any]:
    """Return the rows of every table that belong to an endpoint."""
    node = engine.endpoints[endpoint]
    found: dict[str, list[range]] = {name: [] for name in Engine._fields if name not in RING_SLACK}
    found["endpoints"].append(range(endpoint, endpoint + 1))
    found["params"].append(range(node.params, node.params + 1))
    for name in ("port", "peer", "qp", "region"):
        base = getattr(node, f"{name}_base")
        found[f"{name}s"].append(range(base, base + getattr(node, f"{name}_count")))
    found["control"].append(range(node.control_base, node.control_base + node.control_mask + 1))
    found["completions"].append(range(node.completion_base, node.completion_base + node.completion_mask + 1))
    found["events"].append(range(node.event_base, node.event_base + node.event_mask + 1))
    for qp in range(node.qp_base, node.qp_base + node.qp_count):
        row = engine.qps[qp]
        found["rotations"].append(range(row.rotation_base, row.rotation_base + row.rotation_count))
        for name in ("evs", "slots"):
            found[name].append(range(row.ev_base, row.ev_base + row.ev_count))
        rings = {
            "messages": "message",
            "sent": "sent",
            "pending_immediates": "pending",
            "receives": "receive",
            "mark_stats": "mark_stats",
        }
        for name, ring in rings.items():
            base = getattr(row, f"{ring}_base")
            found[name].append(range(base, base + getattr(row, f"{ring}_mask") + 1))
        found["tracker"].append(range(row.tracker_base, row.tracker_base + (row.tracker_mask + 1) // 32))
    return {
        name: np.concatenate([np.array(part, np.int64) for part in parts]) for name, parts in found.items() if parts
    }


class Recorder:
    """Stands in for `engine.endpoint` and writes down what one endpoint of one engine is asked."""

    def __init__(self, doors: Any, engine: Engine, endpoint: int) -> None:
        self._doors = doors
        self._engine = engine
        self.schedule = Schedule(endpoint, copied(engine))
        self.is_open = True
        self.arriving: dict[str, int] | None = None  # the packet as it was sent, where the world knows it

    def _is_ours(self, engine: Engine, endpoint: int) -> bool:
        return self.is_open and engine.qps is self._engine.qps and endpoint == self.schedule.endpoint

    def _note(self, door: str, now: int, given: dict[str, Any], answer: Any = None) -> None:
        self.schedule.steps.append(Step(door, now, given, answer))

    def _is_our_qp(self, engine: Engine, qp: int) -> bool:
        return self._is_ours(engine, engine.qps[qp].endpoint)

    def __getattr__(self, name: str) -> Any:
        """Pass prefetches on: they change nothing, so they are no input."""
        if name.startswith("prefetch_"):
            return getattr(self._doors, name)
        raise AttributeError(name)

    def receive(self, engine: Engine, now: int, endpoint: int, packet: int) -> None:
        if self._is_ours(engine, endpoint):
            arrived = columns_of(engine.packets, packet)
            self._note("receive", now, {"packet": arrived | (self.arriving or {})})
        self._doors.receive(engine, now, endpoint, packet)

    def next_packet(self, engine: Engine, now: int, endpoint: int, free_ports: int, packet: int) -> int:
        found: int = self._doors.next_packet(engine, now, endpoint, free_ports, packet)
        if self._is_ours(engine, endpoint):
            answer = columns_of(engine.packets, packet) if found else None
            self._note("next_packet", now, {"free_ports": free_ports}, answer)
        return found

    def put_data_first(self, engine: Engine, endpoint: int, packets: int) -> None:
        if self._is_ours(engine, endpoint) and packets != engine.endpoints[endpoint].data_ahead:
            self._note("put_data_first", -1, {"packets": packets})
        self._doors.put_data_first(engine, endpoint, packets)

    def expire(self, engine: Engine, now: int, endpoint: int) -> None:
        if self._is_ours(engine, endpoint) and engine.endpoints[endpoint].deadline <= now:
            self._note("expire", now, {})
        self._doors.expire(engine, now, endpoint)

    def next_deadline(self, engine: Engine, endpoint: int) -> int:
        return int(self._doors.next_deadline(engine, endpoint))

    def next_completion(self, engine: Engine, endpoint: int) -> int:
        row: int = self._doors.next_completion(engine, endpoint)
        if self._is_ours(engine, endpoint) and row >= 0:
            self._note("next_completion", -1, {}, columns_of(engine.completions, row))
        return row

    def next_event(self, engine: Engine, endpoint: int) -> int:
        row: int = self._doors.next_event(engine, endpoint)
        if self._is_ours(engine, endpoint) and row >= 0:
            self._note("next_event", -1, {}, columns_of(engine.events, row))
        return row

    def post_write(self, engine: Engine, now: int, qp: int, write: WriteRequest) -> int:
        status: int = self._doors.post_write(engine, now, qp, write)
        if self._is_our_qp(engine, qp):
            self._note("post_write", now, {"qp": qp, **{name: getattr(write, name) for name in REQUEST}}, int(status))
        return status

    def post_receive(self, engine: Engine, qp: int, wr_id: int) -> int:
        status: int = self._doors.post_receive(engine, qp, wr_id)
        if self._is_our_qp(engine, qp):
            self._note("post_receive", -1, {"qp": qp, "wr_id": wr_id}, int(status))
        return status

    def set_port(self, engine: Engine, now: int, endpoint: int, port: int, up: int) -> None:
        if self._is_ours(engine, endpoint):
            self._note("set_port", now, {"port": port, "up": up})
        self._doors.set_port(engine, now, endpoint, port, up)

    def close(self) -> Schedule:
        """End the recording."""
        self.is_open = False
        self.schedule.after = copied(self._engine)
        return self.schedule
