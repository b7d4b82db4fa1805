"""The profiles of a NIC at work: which queue pairs use which, and what that changes in the engine."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from openmrc.ctl.ev_events import EvEventQueues, EvStateEvent
from openmrc.ctl.profiles.cc_profile import CC_FIELDS, CcChange, CcConfig
from openmrc.ctl.profiles.ev_array import EvEntry, EvOpEntry
from openmrc.ctl.profiles.ev_configuration import EVENT_STATES, EvLimits, EvProfileChange, FormatChange
from openmrc.ctl.profiles.ev_rules import EvEntryState, EvMode, EvOp
from openmrc.ctl.profiles.store import ProfileIds, ProfileStore
from openmrc.engine.congestion import qpcc
from openmrc.engine.paths import ev_states
from openmrc.engine.state import params
from openmrc.engine.state.machines import EvEvent as EngineEvent
from openmrc.engine.state.machines import EvState
from openmrc.engine.state.tables import NONE, Event
from openmrc.errors import BusyError, InvalidArgumentError
from openmrc.live.ctl.nic_evs import NicEvs
from openmrc.live.ctl.queue_pair_rows import QueuePairRows
from openmrc.live.datapath.loop import operations
from openmrc.live.host.runtime import EndpointRuntime

_ENGINE_EVENTS = {
    EvEntryState.GOOD: EngineEvent.ALLOW,
    EvEntryState.ASSUMED_BAD: EngineEvent.SACK_ALWAYS_SKIP,
    EvEntryState.DENIED: EngineEvent.DENY,
}
_BAD_STATES = {int(EvState.ASSUMED_BAD): EvEntryState.ASSUMED_BAD, int(EvState.DENIED): EvEntryState.DENIED}


@dataclass
class BoundQueuePair:
    """What a queue pair uses, from INIT to RESET."""

    ids: ProfileIds
    evs: dict[tuple[int, int], EvEntry]  # (plane, engine's value) -> EV of the profile


class NicProfiles:
    """Format, EV and congestion control profiles of one NIC."""

    def __init__(self, rows: QueuePairRows, runtime: EndpointRuntime) -> None:
        self._rows = rows
        self._runtime = runtime
        self.evs = NicEvs(runtime.sockets, rows.peers)
        ports = len(runtime.sockets.addresses)
        self.store = ProfileStore(EvLimits(ports=ports, max_evs=ports * int(runtime.nic.evs)), self.evs, self.evs.mode)
        self.events = EvEventQueues()
        self._bound: dict[int, BoundQueuePair] = {}  # row of the queue pair
        self._events_lost = 0
        self.on_changed: Callable[[int], None] = lambda row: None  # called when a connected queue pair has other EVs
        self.lock: AbstractContextManager[object] = threading.RLock()

    # Commands of controllers

    def modify_format(self, number: int, change: FormatChange) -> None:
        with self.lock:
            self.store.modify_format(number, change)

    def modify_ev(self, number: int, change: EvProfileChange) -> None:
        """Change an EV profile, and the queue pairs that use it."""
        with self.lock:
            profile = self.store.ev(number)
            self.store.check_free_evs(number, change.count)
            self._check_replacements(number, change)
            try:
                profile.modify(change)
            finally:  # a batch that stopped has changed the entries before
                self._carry_over(number, change)

    def modify_cc(self, number: int, change: CcChange) -> None:
        """Change a congestion control profile; a new configuration acts on the connections that use it at once."""
        with self.lock:
            profile = self.store.cc(number)
            profile.modify(change)
            if profile.config is not None and profile.algorithm is not None:
                with self._runtime.locked():
                    self._write_cc(number, profile.algorithm, profile.config)

    def use(self, ids: ProfileIds) -> None:
        with self.lock:
            self.store.use(ids)

    # Queue pairs

    def bind(self, row: int, wanted: ProfileIds) -> None:
        """Note which profiles a queue pair uses that goes to INIT; EINVAL unless they are ONLINE."""
        with self.lock:
            self.unbind(row)
            ids = self.store.resolved(wanted)
            self.store.bind(ids)
            self._bound[row] = BoundQueuePair(ids, {})

    def unbind(self, row: int) -> None:
        """Forget a queue pair."""
        with self.lock:
            known = self._bound.pop(row, None)
            if known is not None:
                self.store.unbind(known.ids)

    def check(self, row: int, peer: int) -> None:
        """Raise EINVAL or EBUSY if a queue pair cannot use its profiles towards a peer."""
        with self.lock:
            bound = self._bound.get(row)
            if bound is None:
                return
            if bound.ids.ev:
                self._evs_towards(bound.ids.ev, peer)
            for other, others in self._bound.items():
                if other != row and self._peer(other) == peer and others.ids.cc != bound.ids.cc:
                    raise BusyError(
                        f"cc_profile_id: {bound.ids.cc}; connections to one peer share a window, and it is under "
                        f"profile {others.ids.cc} now"
                    )

    def apply(self, row: int) -> None:
        """Give a queue pair that went to RTR the EVs and the congestion control of its profiles."""
        with self.lock:
            bound = self._bound.get(row)
            if bound is None:
                return
            if bound.ids.cc:
                self._apply_cc(row, bound.ids.cc)
            if bound.ids.ev and self.store.ev(bound.ids.ev).configuration.mode != EvMode.AUTO:
                self._apply_evs(row, bound)
            elif bound.ids.ev:
                self._runtime.engine.qps[row].min_active_evs = self.store.ev(bound.ids.ev).configuration.min_active or 0

    def _apply_cc(self, row: int, number: int) -> None:
        peer = self._peer(row)
        is_first = not any(self._peer(other) == peer for other in self._bound if other != row)
        with self._runtime.locked() as now:
            self._runtime.engine.peers[peer].params = number
            if is_first:
                qpcc.begin(self._runtime.engine, now, peer)

    def _apply_evs(self, row: int, bound: BoundQueuePair) -> None:
        profile = self.store.ev(bound.ids.ev)
        towards = self._evs_towards(bound.ids.ev, self._peer(row))
        bound.evs = {key: ev for key, (ev, _) in towards.items()}
        listed: list[list[int]] = [[] for _ in range(self.store.limits.ports)]
        for plane, value in towards:
            listed[plane].append(value)
        operations.give(self._runtime.at, row, _matrix(listed), profile.configuration.min_active or 0)
        denied = [key for key, (_, state) in towards.items() if state == EvEntryState.DENIED]
        self._transition(row, denied, EngineEvent.DENY)

    def _evs_towards(self, number: int, peer: int) -> dict[tuple[int, int], tuple[EvEntry, EvEntryState]]:
        """Return the EVs of a profile by (plane, engine's value); EINVAL if a port has none that leads to the peer."""
        found: dict[tuple[int, int], tuple[EvEntry, EvEntryState]] = {}
        profile = self.store.ev(number)
        if profile.configuration.mode == EvMode.AUTO:
            return found
        values = [self.evs.values(plane, peer) for plane in range(self.store.limits.ports)]
        for ev, state, wire in profile.usable():
            value = values[ev.port - 1].get(wire)
            if value is not None:  # else, with SRv6, it leads to another peer
                found.setdefault((ev.port - 1, value), (ev, state))
        for plane in range(self.store.limits.ports):
            if not any(key[0] == plane for key in found):
                raise InvalidArgumentError(f"ev_profile_id: {number} has no EV to this peer on port {plane + 1}")
        return found

    # What the engine found

    def on_ev_state(self, record: Event) -> None:
        """Learn that an EV failed or recovered, and tell the readers of events that asked for it."""
        with self.lock:
            bound = self._bound.get(int(record.qp))
            state = _BAD_STATES.get(int(record.state), EvEntryState.GOOD)
            key = (int(record.port), int(record.entropy))
            number = bound.ids.ev if bound is not None else 0
            ev = bound.evs.get(key) if bound is not None else None
            if number and ev is not None:
                is_asked = self.store.ev(number).learn(ev, state)
            elif number:
                is_asked = state in (self.store.ev(number).configuration.event_mask or EvEntryState(0))
            else:
                is_asked = state in EVENT_STATES
            if is_asked:
                wire = ev.value if ev is not None else self.evs.own(key[1])
                self.events.push(
                    EvStateEvent(
                        profile=number,
                        ev=wire.rstrip(b"\0").hex() or "00",
                        port=key[0] + 1,
                        state=str(state.name),
                        qpn=self._rows.qpn(int(record.qp)),
                        value=key[1],
                    )
                )

    def count_lost_events(self) -> None:
        """Count what the engine's own ring had no room for."""
        lost = int(self._runtime.engine.endpoints[0].events_dropped)
        if lost > self._events_lost:
            self.events.lose(lost - self._events_lost)
        self._events_lost = lost

    # Internals

    def _peer(self, row: int) -> int:
        return int(self._runtime.engine.qps[row].peer)

    def _users(self, number: int) -> list[tuple[int, BoundQueuePair]]:
        return [(row, bound) for row, bound in self._bound.items() if bound.ids.ev == number and bound.evs]

    def _check_replacements(self, number: int, change: EvProfileChange) -> None:
        """Raise EINVAL for a replacement on another port while queue pairs use the profile: planes stay as loaded."""
        if change.ev_op != EvOp.REPLACE_EV or not self._users(number):
            return
        for index, entry in enumerate(change.entries):
            if entry.ev_new is not None and entry.ev_new.port != entry.ev.port:
                raise InvalidArgumentError(
                    f"entries[{index}].ev_new.port: {entry.ev_new.port}; in use, an EV is replaced on its own port, "
                    f"{entry.ev.port}"
                )

    def _carry_over(self, number: int, change: EvProfileChange) -> None:
        """Bring the queue pairs of a profile to what its array says now."""
        if change.ev_op is None:
            return
        known = dict(self.store.ev(number).array.entries())
        for row, bound in self._users(number):
            for entry in change.entries:
                self._carry_over_one(number, row, bound, entry, known)
            self.on_changed(row)

    def denies(self, row: int, plane: int, value: int) -> bool:
        """Whether the profile of a queue pair denies an EV."""
        bound = self._bound.get(row)
        ev = bound.evs.get((plane, value)) if bound is not None else None
        if bound is None or ev is None:
            return False
        return dict(self.store.ev(bound.ids.ev).array.entries()).get(ev) == EvEntryState.DENIED

    def _carry_over_one(
        self, number: int, row: int, bound: BoundQueuePair, entry: EvOpEntry, known: dict[EvEntry, EvEntryState]
    ) -> None:
        for key, ev in list(bound.evs.items()):
            if ev == entry.ev and ev not in known and entry.ev_new is not None:
                self._replace(number, row, bound, key, entry.ev_new)
        for key, ev in list(bound.evs.items()):
            if ev in (entry.ev, entry.ev_new) and ev in known:
                self._transition(row, [key], _ENGINE_EVENTS[known[ev]])

    def _replace(self, number: int, row: int, bound: BoundQueuePair, key: tuple[int, int], new: EvEntry) -> None:
        expansion = self.store.ev(number).configuration.expansion
        value = None if expansion is None else self.evs.values(key[0], self._peer(row)).get(expansion.expand(new.value))
        if value is None or (key[0], value) in bound.evs:
            return  # leads elsewhere, or is there already: the old one stays until the queue pair connects again
        with self._runtime.locked() as now:
            index = ev_states.find(self._runtime.engine, row, key[1])
            if index != NONE:
                ev_states.transition(self._runtime.engine, now, index, EngineEvent.ALLOW)
                ev_states.exchange(self._runtime.engine, index, value)
        del bound.evs[key]
        bound.evs[key[0], value] = new

    def _transition(self, row: int, keys: list[tuple[int, int]], event: EngineEvent) -> None:
        if not keys:
            return
        with self._runtime.locked() as now:
            for _, value in keys:
                index = ev_states.find(self._runtime.engine, row, value)
                if index != NONE:
                    ev_states.transition(self._runtime.engine, now, index, event)

    def _write_cc(self, number: int, algorithm: str, config: CcConfig) -> None:
        """Write a profile into its row of parameters: the endpoint's own, but for what it sets."""
        row = self._runtime.engine.params[number]
        params.fill(row, replace(self._runtime.settings, algorithm=algorithm or "none"))
        for name, value in config.items():
            setattr(row, CC_FIELDS[name].tunable, value * CC_FIELDS[name].scale)


def _matrix(listed: list[list[int]]) -> NDArray[np.int64]:
    values = np.full((len(listed), max(map(len, listed))), operations.NO_EV, np.int64)
    for plane, row in enumerate(listed):
        values[plane, : len(row)] = row
    return values
