"""EV profiles of the controller API (MRC §10; `mrc_ctl.h`).

A call that raises changes nothing, with one exception of the API: in a batch the entries before the failing one stay
applied (`CallError.done`), and so do the attributes of the same call, which are applied first. The path states of queue
pairs are in the rows of the engine.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from openmrc.errors import BusyError, InvalidArgumentError, TooBigError
from openmrc.profiles.ev_array import EvArray, EvEntry, EvEntryState, EvOp, check_value
from openmrc.profiles.ev_carrier import EvCarrier
from openmrc.profiles.ev_configuration import EVENT_STATES, EvConfiguration, EvLimits, EvMode, EvProfileChange, merged
from openmrc.profiles.ev_format import EvField
from openmrc.profiles.profile_states import EvAttribute, ProfileState, check_online_change, check_step, route


class EvProfile:
    """A set of EVs of fixed size for queue pairs."""

    def __init__(self, limits: EvLimits, carrier: EvCarrier, seed: int = 1) -> None:
        self.limits = limits
        self._carrier = carrier
        self.seed = seed  # of generated EVs
        self.state = ProfileState.INIT
        self.configuration = EvConfiguration()
        self.array = EvArray(())
        self._array_made_from: tuple[object, ...] | None = None
        self.active_qps = 0  # queue pairs that use it now

    def modify(self, change: EvProfileChange) -> None:
        """Apply a change: attributes, then the transition to OFFLINE, the EV operation, the transition to ONLINE.

        Raises EINVAL, E2BIG, ENOENT (an EV is not in the profile) or EBUSY (queue pairs use it).
        """
        entered = route(self.state, self.state if change.state is None else change.state)
        self._check_allowed(change, leaves=bool(entered))
        wanted = merged(self.configuration, change, self.limits)
        array = self._array_for(wanted)
        _check_steps(entered, wanted)
        self._check_operation(change, wanted, array)
        self.configuration, self.array, self._array_made_from = wanted, array, wanted.array_depends_on
        for state in entered:
            if state != ProfileState.ONLINE:
                self._enter(state)
        if change.ev_op is not None:
            array.apply(change.ev_op, change.entries, functools.partial(self._check_new, wanted))
        if ProfileState.ONLINE in entered:
            array.check(wanted.expansion)
            self._check_carried(array, wanted)
            self._enter(ProfileState.ONLINE)

    def query_array(self, capacity: int | None = None) -> list[tuple[EvEntry, EvEntryState]]:
        """Return all EVs with their states (QUERY_EV_ARRAY); E2BIG if there are more than the caller has room for."""
        if capacity is not None and capacity < len(self.array):
            raise TooBigError(f"entries: room for {capacity}; the profile has {len(self.array)}", len(self.array))
        return self.array.entries()

    def query_states(self, evs: Sequence[EvEntry]) -> list[EvEntryState]:
        """Return the state of each EV (QUERY_EV_STATE); ENOENT names the first that is not in the profile."""
        return [self.array.state_of(ev, f"entries[{index}]") for index, ev in enumerate(evs)]

    def query_fields(self, capacity: int | None = None) -> tuple[EvField, ...]:
        """Return the fields (QUERY_FIELDS); E2BIG if there are more than the caller has room for."""
        fields = self.configuration.fields or ()
        if capacity is not None and capacity < len(fields):
            raise TooBigError(f"fields: room for {capacity}; the profile has {len(fields)}", len(fields))
        return fields

    def expanded(self) -> list[bytes]:
        """Return the expanded EVs in the order of the array; empty in AUTO mode."""
        expansion = self.configuration.expansion
        if expansion is None:
            return []
        return [expansion.expand(entry.value) for entry, _ in self.array.entries()]

    def learn(self, ev: EvEntry, state: EvEntryState) -> bool:
        """Record the state of a path found by the transport; return whether the event mask requests an event.

        ASSUMED_BAD is ignored if fewer than `min_active` EVs would stay GOOD; only the controller changes DENIED.
        """
        known = self.array.state_of(ev, "ev")
        if state not in EVENT_STATES or known in (state, EvEntryState.DENIED):
            return False
        left = self.array.good - self.array.copies(ev)
        if state == EvEntryState.ASSUMED_BAD and left < (self.configuration.min_active or 0):
            return False
        self.array.set_state(ev, state, every=True)
        return state in (self.configuration.event_mask or EvEntryState(0))

    def check_usable(self) -> None:
        """Raise EINVAL unless queue pairs can use it."""
        if self.state != ProfileState.ONLINE:
            raise InvalidArgumentError(f"EV profile: {self.state.name}; queue pairs can use it when ONLINE")

    def usable(self) -> list[tuple[EvEntry, EvEntryState, bytes]]:
        """Return the EVs with their states and bits on the wire, in the order of the array; none in AUTO mode."""
        expanded = self.expanded()
        return [(ev, state, wire) for (ev, state), wire in zip(self.array.entries(), expanded, strict=False)]

    def _check_allowed(self, change: EvProfileChange, leaves: bool) -> None:
        if change.ev_op is not None and change.fields is not None:
            raise InvalidArgumentError("EV_OP and EV_FIELDS_OP exclude each other in one call")
        if self.state != ProfileState.ONLINE:
            return
        check_online_change(self.configuration.rules, change.mask, self.limits.modify_online)
        if self.active_qps and (leaves or change.fields is not None):
            raise BusyError(f"EV profile: {self.active_qps} queue pairs use it")

    def _array_for(self, wanted: EvConfiguration) -> EvArray:
        """Return the array for a configuration: the present one, unless its inputs changed."""
        made_from = wanted.array_depends_on
        if made_from is not None and made_from == self._array_made_from:
            if self.state == ProfileState.ONLINE:
                self.array.check(wanted.expansion)  # the fields may have changed, explicit EVs stay
            return self.array
        return self._new_array(wanted)

    def _new_array(self, wanted: EvConfiguration) -> EvArray:
        """Create an array from a configuration: unpopulated, or generated by the device."""
        if wanted.array_depends_on is None or wanted.count is None:
            return EvArray(())
        if wanted.mode == EvMode.EXPLICIT or wanted.expansion is None:
            return EvArray([EvEntry.unpopulated()] * wanted.count)
        return EvArray(self._carrier.generated(wanted.expansion, wanted.count, self.seed))

    def _check_carried(self, array: EvArray, wanted: EvConfiguration) -> None:
        """Raise EINVAL for an EV that no packet of this device can carry, or a port without any."""
        expansion = wanted.expansion
        if expansion is None:
            return
        for index, (ev, _) in enumerate(array.entries()):
            self._carrier.check(expansion.format.mode, ev, expansion.expand(ev.value), f"EV {index}")
        self._carrier.check_ports({ev.port for ev, _ in array.entries()})

    def _check_new(self, wanted: EvConfiguration, ev: EvEntry, name: str) -> None:
        """Raise EINVAL for a replacement that no packet can carry."""
        if not 1 <= ev.port <= self.limits.ports:
            raise InvalidArgumentError(f"{name}.port: {ev.port} is not in 1..{self.limits.ports}")
        expansion = wanted.expansion
        if expansion is not None:
            check_value(ev, expansion, name)
            self._carrier.check(expansion.format.mode, ev, expansion.expand(ev.value), name)

    def _check_operation(self, change: EvProfileChange, wanted: EvConfiguration, array: EvArray) -> None:
        if change.ev_op is None:
            return
        if wanted.mode == EvMode.AUTO or not len(array):
            raise InvalidArgumentError(f"{change.ev_op.name}: the profile has no EV array yet, or its mode is AUTO")
        if change.ev_op == EvOp.REPLACE_EV and wanted.mode != EvMode.EXPLICIT:
            raise InvalidArgumentError("REPLACE_EV: the NIC makes the EVs of a GENERATED profile; deny one instead")
        cap = self.limits.entries_per_op
        if cap and len(change.entries) > cap:
            raise TooBigError(f"entries: {len(change.entries)}; the device takes {cap} a call", cap)

    def _enter(self, state: ProfileState) -> None:
        form = self.configuration.format
        if form is not None:
            form.online_profiles += (state == ProfileState.ONLINE) - (self.state == ProfileState.ONLINE)
        self.state = state
        if state == ProfileState.INIT:
            self.configuration, self.array, self._array_made_from = EvConfiguration(), EvArray(()), None


def _check_steps(entered: tuple[ProfileState, ...], wanted: EvConfiguration) -> None:
    """Raise if attributes for a transition are missing; unreplaced entries are detected at its end."""
    for state in entered:
        check_step(wanted.rules, state, wanted.known | EvAttribute.REPLACE_EV)
    form = wanted.format
    if ProfileState.ONLINE in entered and form is not None and form.state != ProfileState.ONLINE:
        raise InvalidArgumentError(f"format: it is {form.state.name}; an EV profile needs it ONLINE")
