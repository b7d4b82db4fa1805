"""Send the probe plan of a lab through the kernel's SRv6, a slice at a time, and say what became of each probe.

One process has a socket in the namespace of every NIC and plane, so it knows of a one-way probe too whether it came.
The plan is sent again and again in `SLICES` slices in the order of the probes' phases, and judged after each: a fault
is seen when its own probes are missing, not when a whole round is over.

A probe that has not returned after `LATE_S` is lost. One that is out for longer than `DOUBT_S` is in doubt: the caller
may have the paths around it probed with the next two slices (`recheck`), not when their own slices come. If more than a
quarter of the probes of most planes are missing at once, this machine was late, not the network, and the slice does not
count.

Probes are datagrams without payload to trim, in the control class: full queues delay and drop them last.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import inside, namespace
from openmrc.operations.diagnosis.plane_watch import ProbedRows
from openmrc.operations.diagnosis.probe_plan import ProbeSet, plan_fabric, probe_path

PORT = 7011
SLICES = 8
LATE_S = 0.010
DOUBT_S = 0.003  # probes return within one on an idle lab; a doubt counts for nothing, it costs some probes
LATE_SHARE = 0.25
RECHECKS = 2  # slices with which paths in doubt are probed: what passes once tells a direction from its cable at 0.985
NICENESS = -10  # of a thread that probes: a fault is named late if nobody looks, and a late probe looks lost
PACE_S = 0.005  # a sweep in 40 ms; without a pause, probing takes a whole processor
_CONTROL_CLASS = 46 << 2  # DSCP of `PortSettings`
CONTENT = struct.Struct("!HIQ")  # plane, row, slice
_NO_ROWS = np.zeros(0, dtype=np.int64)
_NO_CHECK6_TX, _NO_CHECK6_RX, _TCLASS = 101, 102, 67


@dataclass
class _Sent:
    """A slice that is under way."""

    number: int
    at: float
    planes: list[int]
    rows: list[Ints]
    missing: list[npt.NDArray[np.bool_]]  # by row of the plan
    left: int


class LabProber:
    """Sockets in all namespaces of a lab; close it."""

    paces = True

    def __init__(self, lab: Lab, pace_s: float = PACE_S) -> None:
        """Open the sockets; `pace_s` is the least time between two slices."""
        self._pace = pace_s
        self.lab, self.plans = lab, plan_fabric(lab.topology)
        self._poll = select.epoll()
        self._by_fd: dict[int, socket.socket] = {}
        self._sockets: list[list[socket.socket]] = []
        self._to: list[list[str]] = []
        try:
            for probes in self.plans:
                self._open_plane(probes)
        except BaseException:
            self.close()
            raise
        self._order = [np.array_split(np.argsort(each.phase, kind="stable"), SLICES) for each in self.plans]
        self._avoided: list[npt.NDArray[np.bool_]] = [np.zeros(len(each), dtype=bool) for each in self.plans]
        self._again = [[_NO_ROWS for _ in self.plans] for _ in range(RECHECKS)]
        self._number = 0
        self._under_way: deque[_Sent] = deque()
        self._settled_now: list[ProbedRows] = []
        self.late_slices = 0

    def _open_plane(self, probes: ProbeSet) -> None:
        plan, plane = self.lab.plan, probes.shape.plane
        self._sockets.append([])
        for nic in range(probes.shape.nics):
            made = self._opened(plan.topology.name(nic), plan.nic_address(plane, nic))
            self._sockets[-1].append(made)
            self._by_fd[made.fileno()] = made
            self._poll.register(made.fileno(), select.EPOLLIN)
        self._to.append([probe_path(plan, probes, row).address for row in range(len(probes))])

    def _opened(self, host: str, address: str) -> socket.socket:
        with inside(namespace(self.lab.name, host)):
            return probe_socket(address)

    def avoid(self, links: Iterable[int]) -> None:
        """Send nothing over these links (numbers of the topology): they are drained, and nothing shall cross them."""
        gone = frozenset(links)
        self._avoided = [probes.crossing(gone) for probes in self.plans]

    def step(self) -> list[ProbedRows]:
        """Send one slice, take what arrives, and return what became of slices that are complete or overdue."""
        next_at = time.monotonic() + self._pace
        self._send()
        self._take()
        while (left := next_at - time.monotonic()) > 0:
            self._take(left)
        taken_until = time.monotonic()
        self._take()
        self._settled_now = self._settled(taken_until)
        return self._settled_now

    def doubts(self) -> list[Ints]:
        """Return, by plane, the rows whose probes are in doubt or just found lost, but for those probed again since.

        None if that many are out that this machine is late: more probes would make it later.
        """
        doubtful, recent = list[_Sent](), list[_Sent]()
        for sent in self._under_way:
            (doubtful if sent.at + DOUBT_S < time.monotonic() else recent).append(sent)
        if sum(sent.left for sent in doubtful) > LATE_SHARE * sum(len(rows) for sent in doubtful for rows in sent.rows):
            return [_NO_ROWS for _ in self.plans]
        found = list[Ints]()
        for plane in range(len(self.plans)):
            out = [sent.rows[plane][sent.missing[plane][sent.rows[plane]]] for sent in doubtful]
            out += [done.rows[done.lost > 0] for done in self._settled_now if done.plane == plane]
            again = [sent.rows[plane] for sent in recent]
            found.append(np.setdiff1d(np.concatenate([_NO_ROWS, *out]), np.concatenate([_NO_ROWS, *again])))
        return found

    def recheck(self, plane: int, rows: Ints) -> None:
        """Probe these rows of a plane with the next slices."""
        for slice_rows in self._again:
            slice_rows[plane] = np.union1d(slice_rows[plane], rows)

    def close(self) -> None:
        """Close all sockets."""
        for each in self._by_fd.values():
            each.close()
        self._by_fd.clear()
        self._poll.close()

    def _send(self) -> None:
        self._number += 1
        part = self._number % SLICES
        again = self._again.pop(0)
        self._again.append([_NO_ROWS for _ in self.plans])
        due = [np.union1d(order[part], rows) for order, rows in zip(self._order, again, strict=True)]
        rows = [mine[~self._avoided[plane][mine]] for plane, mine in enumerate(due)]
        for plane, mine in enumerate(rows):
            sockets, to = self._sockets[plane], self._to[plane]
            for row, nic in zip(mine.tolist(), self.plans[plane].source[mine].tolist(), strict=True):
                with contextlib.suppress(OSError):  # a NIC whose cable is pulled has no route: the probe is lost
                    sockets[nic].sendto(CONTENT.pack(plane, row, self._number), (to[row], PORT))
        missing = [np.ones(len(each), dtype=bool) for each in self.plans]
        count = sum(map(len, rows))
        self._under_way.append(_Sent(self._number, time.monotonic(), list(range(len(rows))), rows, missing, count))

    def _take(self, seconds: float = 0.0) -> None:
        for descriptor, _ in self._poll.poll(seconds):
            while True:
                try:
                    plane, row, number = CONTENT.unpack(self._by_fd[descriptor].recv(64))
                except (BlockingIOError, struct.error):
                    break
                for sent in self._under_way:
                    if sent.number == number and sent.missing[plane][row]:
                        sent.missing[plane][row] = False
                        sent.left -= 1

    def _settled(self, taken_until: float) -> list[ProbedRows]:
        """Return what became of slices; `taken_until`: all that had arrived by then is taken.

        A clock that is read after the sockets would call probes lost that arrived while this process did not run.
        """
        found: list[ProbedRows] = []
        while self._under_way and (not self._under_way[0].left or self._under_way[0].at + LATE_S < taken_until):
            found += self._outcome(self._under_way.popleft())
        return found

    def _outcome(self, sent: _Sent) -> list[ProbedRows]:
        lost = [sent.missing[plane][rows].astype(np.int64) for plane, rows in zip(sent.planes, sent.rows, strict=True)]
        if is_host_late(lost):
            self.late_slices += 1
            return []
        return [ProbedRows(*each) for each in zip(sent.planes, sent.rows, lost, strict=True) if len(each[1])]


def hurry() -> None:
    """Have this thread run before others where it may; that needs root or CAP_SYS_NICE, as a lab does."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def is_host_late(lost: Sequence[npt.NDArray[np.int64 | np.bool_]]) -> bool:
    """Whether the probes of a slice, by plane, were lost or late at this host: more than a quarter of most planes'."""
    bad = sum(1 for each in lost if len(each) and each.mean() > LATE_SHARE)
    return len(lost) > 1 and 2 * bad > len(lost)


def probe_socket(address: str) -> socket.socket:
    """Return a socket of this namespace from which probes are sent and to which they return; OSError."""
    made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_UDP, _NO_CHECK6_TX, 1)
        made.setsockopt(socket.SOL_UDP, _NO_CHECK6_RX, 1)
        made.setsockopt(socket.IPPROTO_IPV6, _TCLASS, _CONTROL_CLASS)
        made.bind((address, PORT))
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made
