"""Send the probes of one host's plan, a slice at a time, and note what returns and what arrives from others.

As `openmrc.operations.fleets.lab_prober`, which sends those of all hosts, but each row is this host's: its loops return
here, its one-way probes arrive elsewhere, and those of others arrive here. The number of a slice is drawn, so that
nobody who has not seen a probe can forge its return.

A slice has few probes, so lateness is judged over rounds: a slice counts, and its one-way probes are reported, only if
none of the rounds that it is in was late. What of it is also sent like data, each row every `DATA_EVERY_S` or as often
as the controller asks, is a slice of its own: it may wait in queues, and counts if no round since it was sent was late.
"""

import contextlib
import random
import secrets
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.diagnosis.probe_plan import DATA_BYTES, ProbeKind, plan_fabric, probe_path
from openmrc.operations.fleets.agents.messages import LoopsSeen, OneWays
from openmrc.operations.fleets.lab_prober import (
    BOOST_S,
    CONTENT,
    DATA_EVERY_S,
    DATA_LATE_S,
    PORT,
    is_host_late,
    probe_socket,
    send_probe,
    take_probe,
)

ROUND_S = 0.08  # in which every probe of the host is sent once
SLICES = 4
LATE_S = 0.1  # a probe that takes longer is lost; a report takes as long, so to wait for less names nothing sooner
MOST_ARRIVED = 1 << 14  # kept for a report
_HEADERS = 48  # bytes of IPv6 and UDP
_IPV6_MTU = 24


@dataclass
class _Slice:
    at: float
    due: float
    number: int
    rows: list[Ints]  # of loops, by plane
    missing: list[npt.NDArray[np.bool_]]
    queued: list[npt.NDArray[np.bool_]]
    left: int
    ways: list[Ints]  # rows that were sent one way, by plane


class HostProber:
    """Sockets on the planes of this host; close it."""

    def __init__(self, plan: UsidPlan, nic: int) -> None:
        """Open the sockets; ConfigError if an address of the plan is not this host's."""
        self.plans, self._nic = plan_fabric(plan.topology), nic
        self._sockets: list[socket.socket] = []
        self._to: list[dict[int, str]] = []
        self._loops: list[list[Ints]] = []
        self._ways: list[list[Ints]] = []
        self._avoided: list[npt.NDArray[np.bool_]] = []
        self._data_bytes: list[int] = []
        self._data_due: list[npt.NDArray[np.float64]] = []
        self._often: list[npt.NDArray[np.float64]] = []  # until when a row is sent like data each round
        try:
            for plane, probes in enumerate(self.plans):
                self._open(plan, plane, nic)
                mine = np.flatnonzero(probes.source == nic)
                self._to.append({int(row): probe_path(plan, probes, int(row)).address for row in mine})
                one_way = probes.kind[mine] == ProbeKind.ONE_WAY
                self._loops.append(np.array_split(mine[~one_way], SLICES))
                self._ways.append(np.array_split(mine[one_way], SLICES))
                self._avoided.append(np.zeros(len(probes), dtype=bool))
                self._data_bytes.append(_data_bytes(next(iter(self._to[plane].values()))))
                self._data_due.append(time.monotonic() + DATA_EVERY_S * probes.phase / probes.period)
                self._often.append(np.full(len(probes), -np.inf))
        except BaseException:
            self.close()
            raise
        self._turn = 0
        self._next_at = time.monotonic() + random.uniform(0, ROUND_S)  # agents that start together do not send together
        self._under_way: deque[_Slice] = deque()
        self._data_under_way: deque[_Slice] = deque()
        self._late_at = -np.inf  # when the last slice of a late round was sent
        self._settled: deque[_Slice] = (
            deque()
        )  # the last slice that was passed on is in the middle, those after it wait
        self._seen: list[LoopsSeen] = []
        self._sent: list[OneWays] = []
        self._arrived: dict[tuple[int, int], dict[int, bool]] = {}  # rows, and whether one like data was queued
        self._arrivals = 0

    def _open(self, plan: UsidPlan, plane: int, nic: int) -> None:
        address = plan.nic_address(plane, nic)
        try:
            self._sockets.append(probe_socket(address))
        except OSError as error:
            raise ConfigError(f"probes of plane {plane}: {address}: {error.strerror}; or give --no-probes") from error

    def avoid(self, links: frozenset[int]) -> None:
        """Send nothing over these links (numbers of the topology)."""
        self._avoided = [probes.crossing(links) for probes in self.plans]

    def hasten(self, rows: Sequence[Sequence[int]]) -> None:
        now = time.monotonic()
        for wanted, until, due in zip(rows, self._often, self._data_due, strict=False):
            mine = np.isin(np.arange(len(until)), np.array(wanted, dtype=np.int64))
            until[mine] = now + BOOST_S
            due[mine] = np.minimum(due[mine], now)

    def step(self) -> float:
        """Send a slice if one is due, take what has arrived; return the seconds until the next one is due."""
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = max(now, self._next_at + ROUND_S / SLICES)
            self._send(now)
        begun = time.monotonic()  # what was due before is in the sockets, however long this process was off the CPU
        self._take()
        self._settle(begun)
        return max(0.0, self._next_at - time.monotonic())

    def taken(self) -> tuple[list[LoopsSeen], list[OneWays], list[OneWays]]:
        self._take()  # what arrived while this process was off the CPU: a report without it says that it was lost
        arrived = [
            OneWays(plane, number, list(rows), [row for row, is_queued in rows.items() if is_queued])
            for (plane, number), rows in self._arrived.items()
        ]
        found = self._seen, self._sent, arrived
        self._seen, self._sent, self._arrived, self._arrivals = [], [], {}, 0
        return found

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _send(self, now: float) -> None:
        self._turn = (self._turn + 1) % SLICES
        loops = [each[self._turn][~self._avoided[plane][each[self._turn]]] for plane, each in enumerate(self._loops)]
        ways = [each[self._turn][~self._avoided[plane][each[self._turn]]] for plane, each in enumerate(self._ways)]
        self._under_way.append(self._sent_slice(loops, ways, now, now + LATE_S))
        loops, ways = ([self._due_like_data(*each, now) for each in enumerate(rows)] for rows in (loops, ways))
        self._data_under_way.append(self._sent_slice(loops, ways, now, now + DATA_LATE_S))

    def _due_like_data(self, plane: int, rows: Ints, now: float) -> Ints:
        due = rows[self._data_due[plane][rows] <= now]
        self._data_due[plane][due] = np.where(self._often[plane][due] > now, now, now + DATA_EVERY_S)
        return np.asarray(due + len(self.plans[plane]))

    def _sent_slice(self, loops: list[Ints], ways: list[Ints], now: float, due: float) -> _Slice:
        number = secrets.randbits(62)
        for plane, sock in enumerate(self._sockets):
            count = len(self.plans[plane])
            for row in (*loops[plane].tolist(), *ways[plane].tolist()):
                size = self._data_bytes[plane] if row >= count else 0
                send_probe(sock, CONTENT.pack(plane, row, number), self._to[plane][row % count], size)
        missing, queued = ([np.full(len(each), value) for each in loops] for value in (True, False))
        return _Slice(now, due, number, loops, missing, queued, sum(map(len, loops)), ways)

    def _take(self) -> None:
        for sock in self._sockets:
            while True:
                try:
                    self._arrive(*take_probe(sock))
                except BlockingIOError:
                    break
                except (OSError, struct.error):
                    continue

    def _arrive(self, plane: int, row: int, number: int, is_queued: bool) -> None:
        count = len(self.plans[plane]) if plane < len(self.plans) else 0
        if row >= 2 * count or self.plans[plane].destination[row % count] != self._nic:
            return  # anybody on the fabric can send here
        if self.plans[plane].source[row % count] != self._nic:
            if self._arrivals < MOST_ARRIVED:
                self._arrivals += 1
                self._arrived.setdefault((plane, number), {})[row] = is_queued and row >= count
            return
        for each in (*self._under_way, *self._data_under_way):
            if each.number == number:
                here = np.flatnonzero((each.rows[plane] == row) & each.missing[plane])
                each.missing[plane][here] = False
                each.queued[plane][here] = is_queued and row >= count
                each.left -= len(here)

    def _settle(self, now: float) -> None:
        while self._under_way and (not self._under_way[0].left or self._under_way[0].due < now):
            self._settled.append(self._under_way.popleft())
            if len(self._settled) >= SLICES:
                self._pass_on(self._settled[-SLICES])
            if len(self._settled) == 2 * SLICES - 1:
                self._settled.popleft()
        while self._data_under_way and (not self._data_under_way[0].left or self._data_under_way[0].due < now):
            done = self._data_under_way.popleft()
            if not done.left or self._late_at < done.at:
                self._report(done)

    def _pass_on(self, done: _Slice) -> None:
        """Report what became of a slice if no round around it was late."""
        near = list(self._settled)
        rounds = [near[at : at + SLICES] for at in range(len(near) - SLICES + 1)]
        if late := [each for each in rounds if _is_late(each)]:
            self._late_at = late[-1][-1].at
        else:
            self._report(done)

    def _report(self, done: _Slice) -> None:
        for plane, rows in enumerate(done.rows):
            if len(rows) and len(self._seen) < MOST_ARRIVED:
                missing, queued = (rows[which[plane]].tolist() for which in (done.missing, done.queued))
                self._seen.append(LoopsSeen(plane, rows.tolist(), missing, queued))
            if len(done.ways[plane]) and len(self._sent) < MOST_ARRIVED:
                self._sent.append(OneWays(plane, done.number, done.ways[plane].tolist()))


def _data_bytes(to: str) -> int:
    """Return the payload of probes like data: of MRC's largest packets, or what this host's own port takes."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.connect((to, PORT))
        return min(DATA_BYTES, sock.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU) - _HEADERS)
    return DATA_BYTES


def _is_late(slices: list[_Slice]) -> bool:
    return is_host_late([np.concatenate(each) for each in zip(*(one.missing for one in slices), strict=True)])
