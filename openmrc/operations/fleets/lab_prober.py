"""Send the probe plan of a lab through the kernel's SRv6, a slice at a time, and say what became of each probe.

One process has a socket in the namespace of every NIC and plane, so it knows of a one-way probe too whether it came.
The plan is sent again and again in `SLICES` slices in the order of the probes' phases, and judged after each: a fault
is seen when its own probes are missing, not when a whole round is over.

A probe that has not returned after `LATE_S` is lost. One that is out for longer than `DOUBT_S` is in doubt: the caller
may have the paths around it probed with the next two slices (`recheck`), not when their own slices come. If more than a
quarter of the probes of most planes are missing at once, a tenth of those like data, this machine was late, not the
network, and the slice does not count.

Probes are datagrams without payload to trim, in the control class: full queues delay and drop them last. Every
`DATA_EVERY_S` a row is also sent like data, in its size and class, as some faults are met by data only. Numbers of rows
above those of the plan mean these. They wait in queues, for `DATA_LATE_S`, where they may be marked or trimmed. If
the caller asks (`recheck`), they are sent every `BOOST_EVERY_S` for `BOOST_S`.
"""

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.fabric.model.port_settings import Dscp
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import inside, namespace
from openmrc.operations.diagnosis.plane_rows import ProbedRows
from openmrc.operations.diagnosis.probe_plan import DATA_BYTES, ProbeSet, plan_fabric, probe_path
from openmrc.operations.fleets.fleet import Prober

PORT = 7011
SLICES = 8
LATE_S, DATA_LATE_S = 0.010, 0.3
DOUBT_S = 0.003  # probes return within one on an idle lab; a doubt counts for nothing, it costs some probes
LATE_SHARE, DATA_LATE_SHARE = 0.25, 0.1
DATA_EVERY_S = 2.56  # 0.64 took up to a seventh of what endpoints sent over the last T1 of a lab
BOOST_S, BOOST_EVERY_S = 3.0, 0.05  # with the rows of a link, enough to fill a port at a tenth of 20 Mb/s
MOST_BOOSTED, MOST_COPIES = 24, 4  # rows of a plane, and times with one slice, where slices take longer
RECHECKS = 2  # slices with which paths in doubt are probed: what passes once tells a direction from its cable at 0.985
NICENESS = -10  # of a thread that probes: a fault is named late if nobody looks, and a late probe looks lost
PACE_S = 0.005  # a sweep in 40 ms; without a pause, probing takes a whole processor
_CONTROL_CLASS = Dscp().control << 2
_DATA_CLASS = struct.pack("i", Dscp().trimmable << 2 | 2)  # its queue may mark it
CONTENT = struct.Struct("!HIQ")  # plane, row, slice
_NO_ROWS = np.zeros(0, dtype=np.int64)
_LOOKED_AT = 512  # bytes of a probe: more than a trimmed one has
_NO_CHECK6_TX, _NO_CHECK6_RX, _TCLASS, _RECEIVE_TCLASS, _MTU_DISCOVER, _PROBE_MTU = 101, 102, 67, 66, 23, 3


@dataclass(eq=False)
class _Sent:
    """A slice that is under way, or what of it was sent like data."""

    number: int
    doubtful_at: float
    due: float
    rows: list[Ints]  # by plane
    missing: list[npt.NDArray[np.bool_]]  # by row
    queued: list[npt.NDArray[np.bool_]]  # arrived marked or trimmed
    left: int


class LabProber(Prober):
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
        self._turns = self._number = 0
        self._boosted_at = 0.0
        self._counts = np.array([len(each) for each in self.plans])  # rows of small probes
        self._boosted = [np.full(len(each), -np.inf) for each in self.plans]  # until when a row is sent often like data
        self._data_sent = [time.monotonic() - DATA_EVERY_S * (each.phase / each.period) for each in self.plans]
        self._under_way: list[_Sent] = []
        self._settled_now: list[ProbedRows] = []
        self.late_slices = 0

    def _open_plane(self, probes: ProbeSet) -> None:
        plan, plane = self.lab.plan, probes.shape.plane
        self._sockets.append([])
        for nic in range(probes.shape.nics):
            with inside(namespace(self.lab.name, plan.topology.name(nic))):
                made = probe_socket(plan.nic_address(plane, nic))
            self._sockets[-1].append(made)
            self._by_fd[made.fileno()] = made
            self._poll.register(made.fileno(), select.EPOLLIN)
        self._to.append([probe_path(plan, probes, row).address for row in range(len(probes))])

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
            (doubtful if sent.doubtful_at < time.monotonic() else recent).append(sent)
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
        """Probe these rows of a plane with the next slices; those like data for a while."""
        small = rows < self._counts[plane]
        for slice_rows in self._again:
            slice_rows[plane] = np.union1d(slice_rows[plane], rows[small])
        like_data = rows[~small] - self._counts[plane]
        if len(like_data) > MOST_BOOSTED:
            like_data = np.random.default_rng(self._number).choice(like_data, MOST_BOOSTED, replace=False)
        if (self._boosted[plane] > time.monotonic()).sum() < MOST_BOOSTED:
            self._boosted[plane][like_data] = time.monotonic() + BOOST_S

    def close(self) -> None:
        for each in self._by_fd.values():
            each.close()
        self._by_fd.clear()
        self._poll.close()

    def _send(self) -> None:
        self._turns += 1
        part, now = self._turns % SLICES, time.monotonic()
        again = self._again.pop(0)
        self._again.append([_NO_ROWS for _ in self.plans])
        self._follow([np.union1d(order[part], rows) for order, rows in zip(self._order, again, strict=True)], DOUBT_S)
        self._follow([self._due_like_data(plane, part, now) for plane in range(len(self.plans))])
        copies = min(MOST_COPIES, int((now - self._boosted_at) / BOOST_EVERY_S))
        if copies:
            self._boosted_at = now
        for _ in range(copies):
            boosted = [
                np.flatnonzero(until > now) + count for until, count in zip(self._boosted, self._counts, strict=True)
            ]
            self._follow(boosted)

    def _due_like_data(self, plane: int, part: int, now: float) -> Ints:
        rows = self._order[plane][part]
        due = rows[self._data_sent[plane][rows] < now - DATA_EVERY_S]
        self._data_sent[plane][due] = now
        return np.asarray(due + self._counts[plane])

    def _follow(self, rows: list[Ints], doubt: float = np.inf) -> None:
        """Send probes of each plane, small ones or like data; in a queue, these are never in doubt."""
        rows = [mine[~self._avoided[plane][mine % self._counts[plane]]] for plane, mine in enumerate(rows)]
        self._number += 1
        missing, queued = ([np.zeros(2 * count, dtype=bool) for count in self._counts] for _ in range(2))
        for plane, mine in enumerate(rows):
            missing[plane][mine] = True
            sockets, to, count = self._sockets[plane], self._to[plane], int(self._counts[plane])
            for row, nic in zip(mine.tolist(), self.plans[plane].source[mine % count].tolist(), strict=True):
                content = CONTENT.pack(plane, row, self._number)
                send_probe(sockets[nic], content, to[row % count], DATA_BYTES if row >= count else 0)
        now, late = time.monotonic(), LATE_S if doubt < np.inf else DATA_LATE_S
        left = sum(map(len, rows))
        self._under_way.append(_Sent(self._number, now + doubt, now + late, rows, missing, queued, left))

    def _take(self, seconds: float = 0.0) -> None:
        for descriptor, _ in self._poll.poll(seconds):
            while True:
                try:
                    plane, row, number, is_queued = take_probe(self._by_fd[descriptor])
                except (BlockingIOError, struct.error):
                    break
                for sent in self._under_way:
                    if sent.number == number and sent.missing[plane][row]:
                        sent.missing[plane][row] = False
                        sent.queued[plane][row] = is_queued
                        sent.left -= 1

    def _settled(self, taken_until: float) -> list[ProbedRows]:
        """Return what became of slices; `taken_until`: all that had arrived by then is taken.

        A clock that is read after the sockets would call probes lost that arrived while this process did not run.
        """
        over = [each for each in self._under_way if not each.left or each.due < taken_until]
        self._under_way = [each for each in self._under_way if each not in over]
        return [done for each in over for done in self._outcome(each)]

    def _outcome(self, sent: _Sent) -> list[ProbedRows]:
        lost = [missing[rows].astype(np.int64) for missing, rows in zip(sent.missing, sent.rows, strict=True)]
        like_data = sent.doubtful_at == np.inf
        if is_host_late(lost, DATA_LATE_SHARE if like_data else LATE_SHARE):
            self.late_slices += 1
            return []
        queued = [marks[rows].astype(np.int64) for marks, rows in zip(sent.queued, sent.rows, strict=True)]
        known = enumerate(zip(sent.rows, lost, queued, strict=True))
        return [ProbedRows(plane, *each) for plane, each in known if len(each[0])]


def hurry() -> None:
    """Have this thread run before others where it may; that needs root or CAP_SYS_NICE, as a lab does."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def is_host_late(lost: Sequence[npt.NDArray[np.int64 | np.bool_]], share: float = LATE_SHARE) -> bool:
    """Whether the probes of a slice, by plane, were lost or late at this host: more than a share of most planes'."""
    bad = sum(1 for each in lost if len(each) and each.mean() > share)
    return len(lost) > 1 and 2 * bad > len(lost)


def take_probe(sock: socket.socket) -> tuple[int, int, int, bool]:
    """Return plane, row and slice of a probe that has arrived, and whether one like data was marked or trimmed.

    OSError (BlockingIOError: none has arrived); struct.error if it is no probe.
    """
    content, ancillary, flags, _ = sock.recvmsg(_LOOKED_AT, 64)
    classes = [data for level, kind, data in ancillary if (level, kind) == (socket.IPPROTO_IPV6, _TCLASS)]
    is_marked = any(data[0] & 3 == 3 for data in classes)
    plane, row, number = CONTENT.unpack_from(content)
    return plane, row, number, is_marked or not flags & socket.MSG_TRUNC


def send_probe(sock: socket.socket, content: bytes, to: str, size: int = 0) -> None:
    """Send a probe, small or of data's class with so many bytes of payload; one that cannot be sent is lost.

    A NIC whose cable is pulled has no route.
    """
    with contextlib.suppress(OSError):
        if size:
            name = (socket.IPPROTO_IPV6, _TCLASS, _DATA_CLASS)
            sock.sendmsg([content, bytes(size - len(content))], [name], 0, (to, PORT))
        else:
            sock.sendto(content, (to, PORT))


def probe_socket(address: str) -> socket.socket:
    """Return a socket of this namespace from which probes are sent and to which they return; OSError."""
    made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_UDP, _NO_CHECK6_TX, 1)
        made.setsockopt(socket.SOL_UDP, _NO_CHECK6_RX, 1)
        made.setsockopt(socket.IPPROTO_IPV6, _TCLASS, _CONTROL_CLASS)
        made.setsockopt(socket.IPPROTO_IPV6, _RECEIVE_TCLASS, 1)
        made.setsockopt(socket.IPPROTO_IPV6, _MTU_DISCOVER, _PROBE_MTU)  # a hop that takes less is a fault to be found
        made.bind((address, PORT))
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made
