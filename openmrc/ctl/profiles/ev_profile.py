"""EV profiles of the controller API (MRC §10; `mrc_ctl.h`).

A call that raises changes nothing, with one exception of the API: in a batch the entries before the failing one stay
applied (`CallError.done`), and so do the attributes of the same call, which are applied first. The path states of queue
pairs are in the rows of the engine.
"""

import functools
from collections.abc import Sequence
from typing import Protocol

from openmrc.ctl.profiles import ev_rules
from openmrc.ctl.profiles.ev_array import UNPOPULATED, EvArray, EvEntry, check_value
from openmrc.ctl.profiles.ev_configuration import EvConfiguration, EvLimits, EvProfileChange, merged
from openmrc.ctl.profiles.ev_format import EvExpansion, EvFormatMode
from openmrc.ctl.profiles.ev_rules import LEARN, REPORT, UNSET, ArraySource, EvEntryState, EvMode
from openmrc.ctl.profiles.refusals import ProfileRefusal, parts
from openmrc.ctl.profiles.states import EvAttribute, ProfileState, check_change, check_known
from openmrc.errors import InvalidArgumentError


class EvCarrier(Protocol):
    """What a profile asks of the device that is to send its EVs."""

    def generated(self, expansion: EvExpansion, count: int, seed: int) -> list[EvEntry]:
        """Return `count` EVs within the bounds of the fields, over all ports; E2BIG if there are fewer."""

    def check_ports(self, ports: set[int]) -> None:
        """Raise EINVAL if a queue pair could not do with EVs on these ports alone."""

    def check(self, mode: EvFormatMode, ev: EvEntry, expanded: bytes, name: str) -> None:
        """Raise EINVAL under `name` for an EV that no packet of this device can carry."""


class EvProfile:
    """A set of EVs of fixed size for queue pairs."""

    def __init__(self, limits: EvLimits, carrier: EvCarrier, seed: int = 1) -> None:
        self.limits = limits
        self._carrier = carrier
        self.seed = seed  # of generated EVs
        self.state = ProfileState.INIT
        self.configuration = EvConfiguration()
        self.array = EvArray()
        self.active_qps = 0  # queue pairs that use it now

    def modify(self, change: EvProfileChange) -> None:
        """Apply a change: attributes, then the transition to OFFLINE, the EV operation, the transition to ONLINE.

        Raises EINVAL, E2BIG, ENOENT (an EV is not in the profile) or EBUSY (queue pairs use it).
        """
        target = self.state if change.state is None else change.state
        self._check_allowed(change, target)
        wanted = merged(self.configuration, change, self.limits)
        array = self._array_for(wanted)
        self._check_known(target, wanted)
        self._check_operation(change, wanted, array)
        self.configuration, self.array = wanted, array
        goes_online = target == ProfileState.ONLINE and self.state != target
        if target != ProfileState.ONLINE:
            self._enter(target)
        elif self.state == ProfileState.INIT:
            self._enter(ProfileState.OFFLINE)  # where it stays if what follows fails
        if change.ev_op is not None:
            array.apply(change.ev_op, change.entries, functools.partial(self._check_new, wanted))
        if goes_online:
            array.check(wanted.expansion)
            self._check_carried(array, wanted)
            self._enter(ProfileState.ONLINE)

    def query_states(self, evs: Sequence[EvEntry]) -> list[EvEntryState]:
        """Return the state of each EV (QUERY_EV_STATE); ENOENT names the first that is not in the profile."""
        return [self.array.state_of(ev, f"entries[{index}]") for index, ev in enumerate(evs)]

    def learn(self, ev: EvEntry, state: EvEntryState) -> bool:
        """Record the state of a path found by the transport; return whether the event mask requests an event.

        ASSUMED_BAD is ignored if fewer than `min_active` EVs would stay GOOD; only the controller changes DENIED.
        """
        known, copies = self.array.state_of(ev, "ev"), self.array.copies(ev)
        mask = UNSET if self.configuration.event_mask is None else int(self.configuration.event_mask)
        found = ev_rules.lesson(known, state, self.array.good, copies, self.configuration.min_active or 0, mask)
        if found & LEARN:
            self.array.set_state(ev, state, every=True)
        return bool(found & REPORT)

    def check_usable(self) -> None:
        """Raise EINVAL unless queue pairs can use it."""
        if self.state != ProfileState.ONLINE:
            raise InvalidArgumentError(f"EV profile: {self.state.name}; queue pairs can use it when ONLINE")

    def usable(self) -> list[tuple[EvEntry, EvEntryState, bytes]]:
        """Return the EVs with their states and bits on the wire, in the order of the array; none in AUTO mode."""
        expansion = self.configuration.expansion
        if expansion is None:
            return []
        return [(ev, state, expansion.expand(ev.value)) for ev, state in self.array.entries()]

    def _check_allowed(self, change: EvProfileChange, target: ProfileState) -> None:
        if change.ev_op is not None and change.fields is not None:
            raise InvalidArgumentError("EV_OP and EV_FIELDS_OP exclude each other in one call")
        check_change(self.configuration.rules, self.state, target, change.mask, self.active_qps)

    def _check_known(self, target: ProfileState, wanted: EvConfiguration) -> None:
        """Raise if attributes for a transition are missing; unreplaced entries are detected at its end."""
        check_known(wanted.rules, self.state, target, wanted.known | EvAttribute.REPLACE_EV)
        form, goes_online = wanted.format, target == ProfileState.ONLINE and self.state != target
        if goes_online and form is not None and form.state != ProfileState.ONLINE:
            raise InvalidArgumentError(f"format: it is {form.state.name}; an EV profile needs it ONLINE")

    def _array_for(self, wanted: EvConfiguration) -> EvArray:
        """Return the array for a configuration: the present one, unless its inputs changed."""
        mode, count = wanted.mode or UNSET, UNSET if wanted.count is None else wanted.count
        expansion = wanted.expansion
        source = ev_rules.array_source(mode, count, expansion is not None)
        made_from = source, count, wanted.fields if source == ArraySource.DEVICE else None
        if made_from == self.array.made_from:
            if self.state == ProfileState.ONLINE:
                self.array.check(expansion)  # the fields may have changed, explicit EVs stay
            return self.array
        if source == ArraySource.DEVICE and expansion is not None:
            return EvArray(self._carrier.generated(expansion, count, self.seed), made_from)
        return EvArray([UNPOPULATED] * count if source == ArraySource.UNPOPULATED else (), made_from)

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
        mode = EvMode.AUTO if wanted.mode is None else wanted.mode
        match parts(ev_rules.operation_verdict(change.ev_op, mode, len(array)))[0]:
            case ProfileRefusal.NO_ARRAY:
                raise InvalidArgumentError(f"{change.ev_op.name}: the profile has no EV array yet, or its mode is AUTO")
            case ProfileRefusal.REPLACE_GENERATED:
                raise InvalidArgumentError("REPLACE_EV: the NIC makes the EVs of a GENERATED profile; deny one instead")

    def _enter(self, state: ProfileState) -> None:
        form = self.configuration.format
        if form is not None:
            form.online_profiles += (state == ProfileState.ONLINE) - (self.state == ProfileState.ONLINE)
        self.state = state
        if state == ProfileState.INIT:
            self.configuration, self.array = EvConfiguration(), EvArray()
