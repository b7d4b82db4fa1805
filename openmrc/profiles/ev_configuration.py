"""The attributes of an EV profile: what a call may change, what the device allows, and the two put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntFlag

from openmrc.errors import InvalidArgumentError, TooBigError
from openmrc.profiles.ev_array import EvEntryState, EvOp, EvOpEntry
from openmrc.profiles.ev_format import EvExpansion, EvField
from openmrc.profiles.ev_format_profile import EvFormatProfile
from openmrc.profiles.profile_states import (
    AUTO_RULES,
    EXPLICIT_RULES,
    GENERATED_RULES,
    EvAttribute,
    ProfileRules,
    ProfileState,
    given,
)


class EvMode(IntFlag):
    """Who makes the EVs; values as in the controller API, where devices advertise a mask of them."""

    AUTO = 1  # the NIC, as it likes
    EXPLICIT = 2  # the controller, each one
    GENERATED = 4  # the NIC, within the fields that the controller gives


RULES = {EvMode.AUTO: AUTO_RULES, EvMode.EXPLICIT: EXPLICIT_RULES, EvMode.GENERATED: GENERATED_RULES}
EVENT_STATES = EvEntryState.GOOD | EvEntryState.ASSUMED_BAD  # the states that events may be asked for


@dataclass(frozen=True)
class EvLimits:
    """What a device can do (`mrc_ctl_device_attr.ev` and its optional capabilities); the defaults are ours."""

    ports: int = 8
    max_evs: int = 16_384  # per profile: what 14 bits of a source port can number
    count_alignment: int = 1
    max_fields: int = 16
    entries_per_op: int = 0  # 0: no cap
    modify_online: bool = True


@dataclass(frozen=True, kw_only=True)
class EvProfileChange:
    """What one call changes of an EV profile; None: not asked for."""

    state: ProfileState | None = None
    mode: EvMode | None = None
    format: EvFormatProfile | None = None  # FMT_ID
    count: int | None = None  # EVs; rounded up to the device's alignment
    min_active: int | None = None  # EVs that stay in use however bad they look
    event_mask: EvEntryState | None = None  # new states that are reported
    ev_op: EvOp | None = None
    entries: Sequence[EvOpEntry] = ()  # what ev_op is applied to
    fields: tuple[EvField, ...] | None = None  # EV_FIELDS_OP MODIFY_FIELDS

    @property
    def mask(self) -> EvAttribute:
        """The attributes it carries."""
        return given(
            (EvAttribute.STATE, self.state),
            (EvAttribute.MODE, self.mode),
            (EvAttribute.FMT_ID, self.format),
            (EvAttribute.COUNT, self.count),
            (EvAttribute.MIN_ACTIVE, self.min_active),
            (EvAttribute.EVENT_MASK, self.event_mask),
            (EvAttribute.MODIFY_FIELDS, self.fields),
            (EvAttribute.REPLACE_EV, True if self.ev_op == EvOp.REPLACE_EV else None),
            (EvAttribute.MODIFY_EV_STATE, True if self.ev_op == EvOp.MODIFY_EV_STATE else None),
        )


@dataclass(frozen=True)
class EvConfiguration:
    """The attributes of an EV profile, without its array."""

    mode: EvMode | None = None
    format: EvFormatProfile | None = None
    count: int | None = None
    min_active: int | None = None
    event_mask: EvEntryState | None = None
    fields: tuple[EvField, ...] | None = None

    @property
    def known(self) -> EvAttribute:
        """The attributes that were set at some time."""
        return given(
            (EvAttribute.MODE, self.mode),
            (EvAttribute.FMT_ID, self.format),
            (EvAttribute.COUNT, self.count),
            (EvAttribute.MIN_ACTIVE, self.min_active),
            (EvAttribute.EVENT_MASK, self.event_mask),
            (EvAttribute.MODIFY_FIELDS, self.fields),
        )

    @property
    def rules(self) -> ProfileRules:
        """What its mode asks for; before a mode is known, the most."""
        return EXPLICIT_RULES if self.mode is None else RULES[self.mode]

    @property
    def expansion(self) -> EvExpansion | None:
        """Format and fields together, once both are known; raises EINVAL when they do not fit."""
        form = None if self.format is None else self.format.format
        if form is None or self.fields is None:
            return None
        return EvExpansion(form, self.fields)

    @property
    def array_depends_on(self) -> tuple[object, ...] | None:
        """What the array is made from: when it changes, a new array is made; None: there can be none yet."""
        if self.mode == EvMode.EXPLICIT and self.count is not None:
            return (self.mode, self.count)
        if self.mode == EvMode.GENERATED and self.count is not None and self.expansion is not None:
            return (self.mode, self.count, self.fields)
        return None


def merged(present: EvConfiguration, change: EvProfileChange, limits: EvLimits) -> EvConfiguration:
    """Return the configuration after a change, checked; counts are rounded up to the device's alignment."""
    names = ("mode", "format", "count", "min_active", "event_mask", "fields")
    wanted = replace(present, **{name: value for name in names if (value := getattr(change, name)) is not None})
    if wanted.mode is not None and wanted.mode not in RULES:
        raise InvalidArgumentError(f"mode: {wanted.mode!r} is not one of AUTO, EXPLICIT, GENERATED")
    if wanted.count is not None:
        wanted = replace(wanted, count=_aligned(wanted.count, limits))
    if wanted.min_active is not None and not 0 <= wanted.min_active <= _most_active(wanted, limits):
        raise InvalidArgumentError(f"min_active: {wanted.min_active} is not in 0..{_most_active(wanted, limits)}")
    if wanted.event_mask is not None and wanted.event_mask & ~EVENT_STATES:
        raise InvalidArgumentError(f"event_mask: {int(wanted.event_mask):#x}; only GOOD and ASSUMED_BAD can be asked")
    if wanted.fields is not None and len(wanted.fields) > limits.max_fields:
        raise TooBigError(f"fields: {len(wanted.fields)}; the device takes {limits.max_fields}", limits.max_fields)
    return wanted


def _most_active(wanted: EvConfiguration, limits: EvLimits) -> int:
    return limits.max_evs if wanted.count is None else wanted.count


def _aligned(count: int, limits: EvLimits) -> int:
    if count < 1:
        raise InvalidArgumentError(f"count: {count}; at least 1 EV is needed")
    aligned = -(-count // limits.count_alignment) * limits.count_alignment
    if aligned > limits.max_evs:
        raise TooBigError(f"count: {aligned} EVs; the device holds {limits.max_evs} a profile", limits.max_evs)
    return aligned
