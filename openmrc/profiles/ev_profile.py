"""EV profiles, as a controller configures them (MRC §10; `mrc_ctl.h`).

A call either does what it asks or raises and changes nothing - but for what the API says of
batches: the entries before the failing one stay applied (`CallError.done`), and with them the
attributes of the same call, which come first. What the paths of one queue pair are worth is not
kept here but in the engine's rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from openmrc.errors import BusyError, InvalidArgumentError, TooBigError
from openmrc.profiles.ev_array import EvArray, EvEntry, EvEntryState, EvOp
from openmrc.profiles.ev_configuration import EVENT_STATES, EvConfiguration, EvLimits, EvMode, EvProfileChange, merged
from openmrc.profiles.ev_format import EvField
from openmrc.profiles.profile_states import EvAttribute, ProfileState, check_online_change, check_step, route


class EvProfile:
    """A set of EVs of fixed size that queue pairs are bound to."""

    def __init__(self, limits: EvLimits | None = None, seed: int = 1) -> None:
        self.limits = limits or EvLimits()
        self.seed = seed  # of the EVs it generates
        self.state = ProfileState.INIT
        self.configuration = EvConfiguration()
        self.array = EvArray(())
        self._array_made_from: tuple[object, ...] | None = None
        self.active_qps = 0  # queue pairs that use it now

    def modify(self, change: EvProfileChange) -> None:
        """Apply a change: attributes and the step to OFFLINE first, then the EV operation, then the step to ONLINE.

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
            array.apply(change.ev_op, change.entries, wanted.expansion, self.limits.ports)
        if ProfileState.ONLINE in entered:
            array.check(wanted.expansion)
            self._enter(ProfileState.ONLINE)

    def query_array(self, capacity: int | None = None) -> list[tuple[EvEntry, EvEntryState]]:
        """Return every EV with its state (QUERY_EV_ARRAY); E2BIG when the caller has no room for them."""
        if capacity is not None and capacity < len(self.array):
            raise TooBigError(f"entries: room for {capacity}; the profile has {len(self.array)}", len(self.array))
        return self.array.entries()

    def query_states(self, evs: Sequence[EvEntry]) -> list[EvEntryState]:
        """Return the state of each EV (QUERY_EV_STATE); ENOENT names the first that is not in the profile."""
        return [self.array.state_of(ev, f"entries[{index}]") for index, ev in enumerate(evs)]

    def query_fields(self, capacity: int | None = None) -> tuple[EvField, ...]:
        """Return the fields (QUERY_FIELDS); E2BIG when the caller has no room for them."""
        fields = self.configuration.fields or ()
        if capacity is not None and capacity < len(fields):
            raise TooBigError(f"fields: room for {capacity}; the profile has {len(fields)}", len(fields))
        return fields

    def expanded(self) -> list[bytes]:
        """Return what packets carry for each EV of the array, in its order; empty in AUTO mode."""
        expansion = self.configuration.expansion
        if expansion is None:
            return []
        return [expansion.expand(entry.value) for entry, _ in self.array.entries()]

    def learn(self, ev: EvEntry, state: EvEntryState) -> bool:
        """Note what the transport found out about a path, and tell whether the event mask asks to report it.

        ASSUMED_BAD is not noted when it would leave fewer GOOD EVs than `min_active`; DENIED stays
        DENIED until the controller says otherwise.
        """
        known = self.array.state_of(ev, "ev")
        if state not in EVENT_STATES or known in (state, EvEntryState.DENIED):
            return False
        left = self.array.good - self.array.copies(ev)
        if state == EvEntryState.ASSUMED_BAD and left < (self.configuration.min_active or 0):
            return False
        self.array.set_state(ev, state, every=True)
        return state in (self.configuration.event_mask or EvEntryState(0))

    def bind(self) -> None:
        """Count one more queue pair that uses this profile; EINVAL unless it is ONLINE."""
        if self.state != ProfileState.ONLINE:
            raise InvalidArgumentError(f"EV profile: {self.state.name}; queue pairs can use it when ONLINE")
        self.active_qps += 1

    def unbind(self) -> None:
        """Count one queue pair less."""
        if self.active_qps == 0:
            raise InvalidArgumentError("EV profile: no queue pair uses it")
        self.active_qps -= 1

    def _check_allowed(self, change: EvProfileChange, leaves: bool) -> None:
        if change.ev_op is not None and change.fields is not None:
            raise InvalidArgumentError("EV_OP and EV_FIELDS_OP exclude each other in one call")
        if self.state != ProfileState.ONLINE:
            return
        check_online_change(self.configuration.rules, change.mask, self.limits.modify_online)
        if self.active_qps and (leaves or change.fields is not None):
            raise BusyError(f"EV profile: {self.active_qps} queue pairs use it")

    def _array_for(self, wanted: EvConfiguration) -> EvArray:
        """Return the array that goes with a configuration: the present one, unless what it is made from changed."""
        made_from = wanted.array_depends_on
        if made_from is not None and made_from == self._array_made_from:
            if self.state == ProfileState.ONLINE:
                self.array.check(wanted.expansion)  # fields may have changed under explicit EVs
            return self.array
        return _new_array(wanted, self.limits.ports, self.seed)

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


def _new_array(wanted: EvConfiguration, ports: int, seed: int) -> EvArray:
    """Return an array made from a configuration: unpopulated, or generated over all ports in turn."""
    if wanted.array_depends_on is None or wanted.count is None:
        return EvArray(())
    if wanted.mode == EvMode.EXPLICIT or wanted.expansion is None:
        return EvArray([EvEntry.unpopulated()] * wanted.count)
    from openmrc.profiles.ev_generation import generate  # brings the compiler, which explicit profiles do without

    values = generate(wanted.expansion, wanted.count, seed)
    return EvArray([EvEntry(value, index % ports + 1) for index, value in enumerate(values)])


def _check_steps(entered: tuple[ProfileState, ...], wanted: EvConfiguration) -> None:
    """Refuse a step whose attributes are missing; whether every entry was replaced shows at the end."""
    for state in entered:
        check_step(wanted.rules, state, wanted.known | EvAttribute.REPLACE_EV)
    form = wanted.format
    if ProfileState.ONLINE in entered and form is not None and form.state != ProfileState.ONLINE:
        raise InvalidArgumentError(f"format: it is {form.state.name}; an EV profile needs it ONLINE")
