"""The denials of controllers, applied to the queue pairs of a NIC, and never to the last path of one.

Two things deny an EV: a denial with a lease, kept here, and the state of the EV in a profile, which lasts. An EV
carries data when neither does.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import column
from openmrc.ctl.denials import ALL_BITS, Denial, Denials, text
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvEvent, EvState
from openmrc.engine.state.queue_pairs import working_ports
from openmrc.errors import BusyError, CallError, InvalidArgumentError
from openmrc.live.attributes import PeerAddress
from openmrc.live.ctl.queue_pair_rows import QueuePairRows
from openmrc.live.host.addresses import host_of
from openmrc.live.host.runtime import EndpointRuntime


class DeniedEvs:
    def __init__(
        self, rows: QueuePairRows, runtime: EndpointRuntime, by_profile: Callable[[int, int, int], bool]
    ) -> None:
        """Hold nothing yet; `by_profile(queue pair, plane, EV)` tells whether a profile denies an EV."""
        self._rows = rows
        self._runtime = runtime
        self._by_profile = by_profile
        self._denials = Denials()
        self._lock = threading.Lock()
        # Whole columns: the loop mutex is held while they are searched, and rows read one by one take microseconds.
        evs = runtime.engine.evs
        self._values, self._ports, self._states = (column(evs, name) for name in ("value", "port", "state"))

    def deny(self, denials: Sequence[Denial], epoch: int | None, lease: float) -> int:
        """Deny EVs in order, up to the first refused one (`done`); return the epoch."""
        with self._lock:
            epoch = self._denials.check(epoch, lease)
            for index, denial in enumerate(denials):
                self._check(denial, index)
            self._denials.check_room(denials)
            self._denials.epoch = epoch
            for index, denial in enumerate(denials):
                try:
                    self._apply(denial)
                except CallError as error:
                    error.done = index
                    raise
                self._denials.add(denial, time.monotonic() + lease)
            self._choose_reply_paths()
        return epoch

    def renew(self, epoch: int | None, lease: float) -> int:
        """Extend all denials; return how many there are."""
        with self._lock:
            self._denials.epoch = self._denials.check(epoch, lease)
            return self._denials.extend(time.monotonic() + lease)

    def lift(self, denials: Sequence[Denial] | None, epoch: int | None) -> int:
        """Lift denials; return how many."""
        with self._lock:
            self._denials.epoch = self._denials.check(epoch)
            gone = self._denials.remove(denials)
            self._allow(gone)
            self._choose_reply_paths()
        return len(gone)

    def lift_lapsed(self) -> None:
        """Lift what nobody renewed."""
        with self._lock:
            over = self._denials.lapsed(time.monotonic())
            if over:
                self._allow(over)
                self._choose_reply_paths()

    def denials(self) -> tuple[int, list[tuple[Denial, float]]]:
        with self._lock:
            return self._denials.epoch, self._denials.left(time.monotonic())

    def enforce(self, row: int) -> None:
        """Deny what is denied for a queue pair whose EVs are new, but for its last path."""
        with self._lock:
            peer = self._rows.peer(row)
            if len(self._denials) == 0 or peer is None:
                return
            with self._runtime.locked() as now:
                for index in self._evs_of(row):
                    if self._is_covered(peer, index) and self._may_go(row, [index]):
                        ev_states.transition(self._runtime.engine, now, index, EvEvent.DENY)

    def _check(self, denial: Denial, index: int) -> None:
        count = len(self._runtime.sockets.addresses)
        if not 1 <= denial.port <= count:
            raise InvalidArgumentError(f"denials[{index}].port: {denial.port} is not in 1..{count}")
        for name, value in (("ev", denial.ev), ("mask", denial.mask)):
            if not 0 <= value <= ALL_BITS:
                raise InvalidArgumentError(f"denials[{index}].{name}: {value} does not fit 32 bits")

    def _apply(self, denial: Denial) -> None:
        """Deny EVs of all queue pairs that it concerns; EBUSY, and nothing is changed, if one would keep no path."""
        with self._runtime.locked() as now:
            found = list(self._named(denial))
            for row, pairs in groupby(found, key=lambda pair: pair[0]):
                if not self._may_go(row, [index for _, index in pairs]):
                    qpn = self._rows.qpn(row)
                    raise BusyError(f"{text(denial)}: queue pair {qpn:#x} would keep no path to its peer")
            for _, index in found:
                ev_states.transition(self._runtime.engine, now, index, EvEvent.DENY)

    def _allow(self, denials: Sequence[Denial]) -> None:
        """Use EVs again that nothing else denies."""
        for denial in denials:
            with self._runtime.locked() as now:
                for row, index in list(self._named(denial)):
                    if self._states[index] == EvState.DENIED and not self._is_denied(row, index):
                        ev_states.transition(self._runtime.engine, now, index, EvEvent.ALLOW)

    def _choose_reply_paths(self) -> None:
        """Keep replies off what is denied towards any peer: they name no queue pair, only a value."""
        denied: dict[int, set[int]] = {}
        for denial, _ in self._denials.left(0.0):
            ours = self._runtime.datapath.ev_values[denial.port - 1]
            denied.setdefault(denial.port - 1, set()).update(ours[_agree(ours, denial)].tolist())
        for plane in range(len(self._runtime.sockets.addresses)):
            self._runtime.choose_reply_paths(plane, denied.get(plane, set()))

    def _is_denied(self, row: int, index: int) -> bool:
        peer = self._rows.peer(row)
        if peer is not None and self._is_covered(peer, index):
            return True
        return self._by_profile(row, int(self._ports[index]), int(self._values[index]))

    def _is_covered(self, peer: PeerAddress, index: int) -> bool:
        plane, value = int(self._ports[index]), int(self._values[index])
        return self._denials.covers(plane + 1, value, host_of(peer.planes[plane]))

    def _named(self, denial: Denial) -> Iterator[tuple[int, int]]:
        """Yield (queue pair, EV) rows that a denial names."""
        plane = denial.port - 1
        for row, peer in self._rows.connected():
            if denial.peer in ("", host_of(peer.planes[plane])):
                evs = self._evs_of(row)
                first, last = evs.start, evs.stop
                named = _agree(self._values[first:last], denial) & (self._ports[first:last] == plane)
                yield from ((row, first + int(offset)) for offset in np.flatnonzero(named))

    def _evs_of(self, row: int) -> range:
        qp = self._runtime.engine.qps[row]
        return range(int(qp.ev_base), int(qp.ev_base) + int(qp.ev_count))

    def _may_go(self, row: int, denied: list[int]) -> bool:
        """Whether a queue pair keeps a path without some EVs: one that carries data, if one of these does."""
        evs, working = self._evs_of(row), int(working_ports(self._runtime.engine, row))
        states = self._states[evs.start : evs.stop].copy()
        offsets = np.array(denied) - evs.start
        before = int(states[offsets].min())
        states[offsets] = EvState.DENIED
        counted = (working >> self._ports[evs.start : evs.stop].astype(np.int64)) & 1 == 1
        left, good = counted & (states != EvState.DENIED), counted & (states <= EvState.SKIP)
        return bool(left.any()) and (bool(good.any()) or before > EvState.SKIP)


def _agree(values: NDArray[Any], denial: Denial) -> NDArray[np.bool_]:
    """Return which EVs a denial names, whatever their port."""
    agree: NDArray[np.bool_] = (values.astype(np.int64) ^ denial.ev) & denial.mask == 0
    return agree
