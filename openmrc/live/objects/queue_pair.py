"""Queue pairs: validate attributes as verbs do, post requests, change states."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from openmrc.ctl.profiles.store import MOST_PROFILES
from openmrc.engine.state.machines import ILLEGAL, QpEvent, QpState, qp_after
from openmrc.live.attributes import (
    INFINITE_RETRIES,
    MAX_LINEAR,
    MAX_TIMEOUT,
    EvStatus,
    QpAttr,
    QpCounters,
    QpHintAttr,
    QpInitAttr,
    RecvWr,
    SendWr,
)
from openmrc.live.checks import MTUS
from openmrc.live.ctl import report
from openmrc.live.errors import BusyError, DeadlineError, InvalidArgumentError
from openmrc.live.objects.memory import MemoryRegion, ProtectionDomain, RegionSlice
from openmrc.live.objects.write_batch import WriteBatch
from openmrc.live.waiting import deadline_after, is_over
from openmrc.wire.codes import FIRST_USER_QPN

if TYPE_CHECKING:
    from openmrc.live.objects.context import Context

PSN_LIMIT = 1 << 24
NO_ROW = -1
NEEDED = {
    QpState.INIT: ("access_flags",),
    QpState.RTR: ("remote", "dest_qpn", "rq_psn", "path_mtu", "max_wimm_dest", "mpr_dest"),
    QpState.RTS: ("sq_psn", "max_wimm", "mpr", "timeout", "linear_count", "exponential_count"),
    QpState.RESET: (),
    QpState.ERROR: (),
}
EVENTS = {
    QpState.INIT: QpEvent.TO_INIT,
    QpState.RTR: QpEvent.TO_RTR,
    QpState.RTS: QpEvent.TO_RTS,
    QpState.RESET: QpEvent.TO_RESET,
    QpState.ERROR: QpEvent.FAIL,
}
RANGES = {
    "dest_qpn": (FIRST_USER_QPN, PSN_LIMIT - 1),
    "rq_psn": (0, PSN_LIMIT - 1),
    "sq_psn": (0, PSN_LIMIT - 1),
    "timeout": (0, MAX_TIMEOUT),
    "linear_count": (0, MAX_LINEAR),
    "exponential_count": (0, INFINITE_RETRIES),
    "user_timeout": (0, math.inf),
    "ev_profile_id": (0, MOST_PROFILES),
    "cc_profile_id": (0, MOST_PROFILES),
}
_STATES = ("state", "cur_state")


class QpHint:
    """Expected traffic of an application, shared by queue pairs (mrc_qp_hint)."""

    def __init__(self, context: Context, attr: QpHintAttr) -> None:
        """Use `Context.create_qp_hint` instead."""
        self.context = context
        self.users = 0
        self._attr = attr
        self.modify(attr)

    def query(self) -> QpHintAttr:
        """Return its attributes."""
        return self._attr

    def modify(self, attr: QpHintAttr) -> None:
        """Replace its attributes; EINVAL if one is out of range."""
        for name in ("num_qps_per_peer", "num_send_peers", "num_remote_recv_peers"):
            if getattr(attr, name) < 0:
                raise InvalidArgumentError(f"{name}: {getattr(attr, name)} is below 0")
        if len(attr.vendor_cfg) > 128:
            raise InvalidArgumentError(f"vendor_cfg: {len(attr.vendor_cfg)} bytes, at most 128 are allowed")
        self._attr = attr

    def destroy(self) -> None:
        """Destroy the hint; EBUSY while queue pairs use it."""
        if self.users and not self.context.is_closed:
            raise BusyError(f"queue pair hint: {self.users} queue pairs use it")


class QueuePair:
    """One connection (mrc_qp): starts in RESET, receives from RTR on, sends from RTS on."""

    def __init__(self, pd: ProtectionDomain, init: QpInitAttr) -> None:
        """Use `Context.create_qp` instead."""
        self.context = pd.context
        self.pd = pd
        self.init = init
        self.send_cq = init.send_cq
        self.recv_cq = init.recv_cq
        self.qp_context = init.qp_context
        self.hint: QpHint | None = None
        self.row = NO_ROW
        self.sent_from: list[MemoryRegion | None] = [None] * init.max_send_wr  # source of each open write, by number
        self._attr = QpAttr()
        self._lock = threading.Lock()
        self._is_destroyed = False
        try:
            self.context.nic.add_qp(self)
            for cq in {init.send_cq, init.recv_cq}:
                cq.users += 1
        except BaseException:
            if self.row != NO_ROW:  # interrupted
                self.context.nic.remove_qp(self)
            raise

    def __repr__(self) -> str:
        return f"<QueuePair {self.qpn:#x} {self.state.name}, {self.outstanding()} writes outstanding>"

    @property
    def qpn(self) -> int:
        """Its number, used by peers; it changes with every RESET."""
        return self.context.nic.rows.qpn(self.row)

    @property
    def state(self) -> QpState:
        """Its state now."""
        return self.context.nic.rows.state(self.row)

    def query(self) -> tuple[QpAttr, QpInitAttr]:
        """Return its current attributes and its initial ones; allowed in any state."""
        return replace(self._attr, state=self.state, qpn=self.qpn), self.init

    def modify(self, attr: QpAttr | None = None, **fields: Any) -> None:
        """Set attributes and, with `state`, change the state; `modify(state=QpState.RTS, sq_psn=7, ...)` is the same.

        EINVAL names the missing or invalid attribute, or the undefined transition; nothing is changed then.
        """
        wanted = replace(attr, **fields) if attr is not None else QpAttr(**fields)
        with self._lock:
            now = self.state
            self._check(wanted, now)
            merged = _merged(self._attr, wanted)
            if wanted.state is None:
                self.context.nic.set_attributes(self, merged)
            else:
                self.context.nic.move(self, merged, EVENTS[wanted.state])
            self._attr = merged
            self._take_hint(wanted.hint)

    def post_send(self, requests: SendWr | Iterable[SendWr]) -> None:
        """Post writes, in order. ENOMEM: the queue is full; EINVAL: the state or an argument does not allow it.

        Requests before the refused one are posted, as with `bad_wr` in verbs.
        """
        self.context.nic.posting.send(self, [requests] if isinstance(requests, SendWr) else list(requests))

    def post_batch(self, writes: WriteBatch) -> None:
        """Post all writes of a batch, in order, or none. ENOMEM: they do not fit the queue; EINVAL as `post_send`."""
        self.context.nic.posting.send_batch(self, writes)

    def post_write(
        self,
        local: MemoryRegion | RegionSlice,
        remote_addr: int,
        r_key: int,
        *,
        wr_id: int = 0,
        immediate: int | None = None,
        signaled: bool = True,
        solicited: bool = False,
    ) -> None:
        """Post one write of `local` to the peer's `remote_addr`, with an immediate if one is given."""
        self.post_send(
            SendWr(
                wr_id=wr_id,
                local=local,
                remote_addr=remote_addr,
                r_key=r_key,
                immediate=immediate,
                signaled=signaled,
                solicited=solicited,
            )
        )

    def post_recv(self, requests: RecvWr | Iterable[RecvWr] | int = 1) -> None:
        """Post receives: requests, or a number of them with `wr_id` 0. Each takes one write with immediate."""
        if isinstance(requests, int):
            requests = [RecvWr()] * requests
        self.context.nic.posting.receive(self, [requests] if isinstance(requests, RecvWr) else list(requests))

    def outstanding(self) -> int:
        """Return how many posted writes have not completed."""
        return self.context.nic.posting.outstanding(self)

    def drain(self, timeout: float) -> None:
        """Wait until every posted write has completed; DeadlineError after `timeout` seconds."""
        deadline = deadline_after(timeout)
        while self.outstanding():
            self.context.nic.posting.pause()
            if is_over(deadline):
                raise DeadlineError(
                    f"{self.outstanding()} writes not completed within {timeout:g} s; {self.context.progress()}"
                )
        self.context.nic.posting.settle()

    def counters(self) -> QpCounters:
        """Return its counters since RESET."""
        return report.qp_counters(self.context.nic.runtime, self.row)

    def ev_states(self) -> list[EvStatus]:
        """Return the state and counters of each of its EVs."""
        return report.ev_states(self.context.nic.runtime, self.row)

    def describe(self) -> str:
        """Return one line for logs and errors: peer, state, last progress, and the paths that are bad."""
        return self.context.nic.describe(self)

    def destroy(self) -> None:
        """Destroy it: packets are no longer sent or received, and posted requests never complete."""
        with self._lock:
            if self._is_destroyed:
                return
            self._is_destroyed = True
            self.context.nic.remove_qp(self)
            self._take_hint(None)
            if self.hint is not None:
                self.hint.users -= 1
            for cq in {self.send_cq, self.recv_cq}:
                cq.users -= 1

    def abandon(self) -> None:
        """Renew the lock in a forked child: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def __enter__(self) -> QueuePair:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def _check(self, wanted: QpAttr, now: QpState) -> None:
        if self._is_destroyed:
            raise InvalidArgumentError(f"queue pair {self.qpn:#x}: destroyed")
        if wanted.cur_state is not None and wanted.cur_state != now:
            raise InvalidArgumentError(f"cur_state: {wanted.cur_state.name}, but the queue pair is in {now.name}")
        _check_ranges(wanted, self.context)
        self._check_profiles(wanted)
        if wanted.state is None:
            return
        if qp_after(now, EVENTS[wanted.state]) == ILLEGAL:
            raise InvalidArgumentError(f"state: no transition from {now.name} to {wanted.state.name}")
        missing = [name for name in NEEDED[wanted.state] if getattr(wanted, name) is None]
        if missing and now != wanted.state:
            raise InvalidArgumentError(f"{now.name} to {wanted.state.name} needs {', '.join(missing)}")

    def _check_profiles(self, wanted: QpAttr) -> None:
        """Raise EINVAL for another profile elsewhere than on the way to INIT."""
        for name in ("ev_profile_id", "cc_profile_id"):
            value = getattr(wanted, name)
            if value is not None and wanted.state != QpState.INIT and value != (getattr(self._attr, name) or 0):
                raise InvalidArgumentError(f"{name}: {value}; a profile is chosen on the way to INIT")

    def _take_hint(self, hint: Any) -> None:
        if isinstance(hint, QpHint) and hint is not self.hint:
            if self.hint is not None:
                self.hint.users -= 1
            self.hint = hint
            hint.users += 1


def _check_ranges(attr: QpAttr, context: Context) -> None:
    device = context.query_device()
    limits = {
        **RANGES,
        "mpr": (1, device.max_mpr),
        "mpr_dest": (1, device.max_mpr),
        "max_wimm": (1, device.max_wimm),
        "max_wimm_dest": (1, device.max_wimm_dest),
    }
    for name, (least, most) in limits.items():
        value = getattr(attr, name)
        if value is not None and not least <= value <= most:
            raise InvalidArgumentError(f"{name}: {value} is not in {least}..{most}")
    if attr.path_mtu is not None and (attr.path_mtu not in MTUS or attr.path_mtu > device.max_mtu):
        allowed = [mtu for mtu in MTUS if mtu <= device.max_mtu]
        raise InvalidArgumentError(f"path_mtu: {attr.path_mtu} is not one of {allowed}")
    if attr.remote is not None and len(attr.remote.planes) != len(device.planes):
        raise InvalidArgumentError(
            f"remote: {len(attr.remote.planes)} planes, but this context has {len(device.planes)}"
        )
    if attr.hint is not None and not isinstance(attr.hint, QpHint):
        raise InvalidArgumentError(f"hint: {attr.hint!r} is not a QpHint")


def _merged(old: QpAttr, new: QpAttr) -> QpAttr:
    """Return `old` with everything that `new` sets; the states are not attributes."""
    return replace(
        old, **{name: value for name, value in vars(new).items() if value is not None and name not in _STATES}
    )
