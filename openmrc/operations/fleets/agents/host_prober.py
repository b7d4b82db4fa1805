"""Send the probes of one host's plan, a slice at a time, and note what returns and what arrives from others.

As `openmrc.operations.fleets.lab_prober`, which sends those of all hosts, but each row is this host's: its loops return
here, its one-way probes arrive elsewhere, and those of others arrive here. The number of a slice is drawn, so that
nobody who has not seen a probe can forge its return.

A slice has few probes, so lateness is judged over rounds: a slice counts, and its one-way probes are reported, only if
none of the rounds that it is in was late.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.diagnosis.probe_plan import ProbeKind, plan_fabric, probe_path
from openmrc.operations.fleets.agents.messages import LoopsSeen, OneWays
from openmrc.operations.fleets.lab_prober import CONTENT, PORT, is_host_late, probe_socket

ROUND_S = 0.08  # in which every probe of the host is sent once
SLICES = 4
LATE_S = 0.1  # a probe that takes longer is lost; a report takes as long, so to wait for less names nothing sooner
MOST_ARRIVED = 1 << 14  # kept for a report


@dataclass
class _Slice:
    due: float
    number: int
    rows: list[Ints]  # of loops, by plane
    missing: list[npt.NDArray[np.bool_]]
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
        try:
            for plane, probes in enumerate(self.plans):
                self._open(plan, plane, nic)
                mine = np.flatnonzero(probes.source == nic)
                self._to.append({int(row): probe_path(plan, probes, int(row)).address for row in mine})
                one_way = probes.kind[mine] == ProbeKind.ONE_WAY
                self._loops.append(np.array_split(mine[~one_way], SLICES))
                self._ways.append(np.array_split(mine[one_way], SLICES))
                self._avoided.append(np.zeros(len(probes), dtype=bool))
        except BaseException:
            self.close()
            raise
        self._turn = 0
        self._next_at = time.monotonic() + random.uniform(0, ROUND_S)  # agents that start together do not send together
        self._under_way: deque[_Slice] = deque()
        self._settled: deque[_Slice] = (
            deque()
        )  # the last slice that was passed on is in the middle, those after it wait
        self._seen: list[LoopsSeen] = []
        self._sent: list[OneWays] = []
        self._arrived: dict[tuple[int, int], list[int]] = {}
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
        """Return the loops that are decided, and what was sent and what arrived one way, since the last time."""
        arrived = [OneWays(plane, number, rows) for (plane, number), rows in self._arrived.items()]
        found = self._seen, self._sent, arrived
        self._seen, self._sent, self._arrived, self._arrivals = [], [], {}, 0
        return found

    def close(self) -> None:
        """Close all sockets."""
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _send(self, now: float) -> None:
        self._turn, number = (self._turn + 1) % SLICES, secrets.randbits(62)
        loops = [each[self._turn][~self._avoided[plane][each[self._turn]]] for plane, each in enumerate(self._loops)]
        ways = [each[self._turn][~self._avoided[plane][each[self._turn]]] for plane, each in enumerate(self._ways)]
        for plane, sock in enumerate(self._sockets):
            for row in (*loops[plane].tolist(), *ways[plane].tolist()):
                with contextlib.suppress(OSError):  # without carrier there is no route: the probe is lost
                    sock.sendto(CONTENT.pack(plane, row, number), (self._to[plane][row], PORT))
        missing = [np.ones(len(each), dtype=bool) for each in loops]
        self._under_way.append(_Slice(now + LATE_S, number, loops, missing, sum(map(len, loops)), ways))

    def _take(self) -> None:
        for sock in self._sockets:
            while True:
                try:
                    plane, row, number = CONTENT.unpack(sock.recv(64))
                except BlockingIOError:
                    break
                except (OSError, struct.error):
                    continue
                self._arrive(plane, row, number)

    def _arrive(self, plane: int, row: int, number: int) -> None:
        if plane >= len(self.plans) or row >= len(self.plans[plane]) or self.plans[plane].destination[row] != self._nic:
            return  # anybody on the fabric can send here
        if self.plans[plane].source[row] != self._nic:
            if self._arrivals < MOST_ARRIVED:
                self._arrivals += 1
                self._arrived.setdefault((plane, number), []).append(row)
            return
        for each in self._under_way:
            if each.number == number:
                here = np.flatnonzero((each.rows[plane] == row) & each.missing[plane])
                each.missing[plane][here] = False
                each.left -= len(here)

    def _settle(self, now: float) -> None:
        while self._under_way and (not self._under_way[0].left or self._under_way[0].due < now):
            self._settled.append(self._under_way.popleft())
            if len(self._settled) >= SLICES:
                self._pass_on(self._settled[-SLICES])
            if len(self._settled) == 2 * SLICES - 1:
                self._settled.popleft()

    def _pass_on(self, done: _Slice) -> None:
        """Report what became of a slice if no round around it was late."""
        near = list(self._settled)
        if any(_is_late(near[at : at + SLICES]) for at in range(len(near) - SLICES + 1)):
            return
        for plane, rows in enumerate(done.rows):
            if len(rows) and len(self._seen) < MOST_ARRIVED:
                self._seen.append(LoopsSeen(plane, rows.tolist(), rows[done.missing[plane]].tolist()))
            if len(done.ways[plane]) and len(self._sent) < MOST_ARRIVED:
                self._sent.append(OneWays(plane, done.number, done.ways[plane].tolist()))


def _is_late(slices: list[_Slice]) -> bool:
    return is_host_late([np.concatenate(each) for each in zip(*(one.missing for one in slices), strict=True)])
