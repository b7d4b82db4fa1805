"""States of controller profiles as tables: attributes required by transitions, and changeable in each state.

EV format, EV and congestion control profiles go INIT -> OFFLINE -> ONLINE and back; they differ in the required
attributes. The table of docs/entropy.md is generated from them by `spec.profile_table`.
Source: `mrc_ctl.h` of opencomputeproject/OCP-Multipath-Reliable-Connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import TypeVar

from openmrc.errors import InvalidArgumentError

Bits = TypeVar("Bits", bound=IntFlag)


class ProfileState(IntEnum):
    """State of a profile."""

    INIT = 0  # created, not configured
    OFFLINE = 1  # being configured
    ONLINE = 2  # in use


class FormatAttribute(IntFlag):
    """Attributes of a change of an EV format profile; values as `mrc_ctl_ev_fmt_profile_attr_mask`."""

    STATE = 1 << 0
    MODE = 1 << 2
    MODIFY_FIELDS = 1 << 3


class EvAttribute(IntFlag):
    """Attributes of a change of an EV profile; low bits as `mrc_ctl_ev_profile_attr_mask`.

    EV_OP is two bits here, since REPLACE_EV and MODIFY_EV_STATE are not allowed in the same states.
    """

    STATE = 1 << 0
    MODE = 1 << 2
    FMT_ID = 1 << 3
    COUNT = 1 << 4
    MIN_ACTIVE = 1 << 5
    EVENT_MASK = 1 << 6
    MODIFY_EV_STATE = 1 << 7
    MODIFY_FIELDS = 1 << 8
    REPLACE_EV = 1 << 16


class CcAttribute(IntFlag):
    """Attributes of a change of a congestion control profile; values as `mrc_ctl_cc_profile_attr_mask`."""

    STATE = 1 << 0
    ALGORITHM = 1 << 2
    CONFIG = 1 << 3


STEPS = (
    (ProfileState.INIT, ProfileState.OFFLINE),
    (ProfileState.OFFLINE, ProfileState.ONLINE),
    (ProfileState.ONLINE, ProfileState.OFFLINE),
    (ProfileState.OFFLINE, ProfileState.INIT),
)


@dataclass(frozen=True)
class ProfileRules:
    """Rules of a kind of profile: attributes required to enter each state, and changeable while ONLINE."""

    name: str
    needs: Mapping[ProfileState, IntFlag]
    while_online: IntFlag
    while_online_optional: IntFlag  # with the device's MODIFY_ONLINE capability


FORMAT_RULES = ProfileRules(
    name="EV format",
    needs={ProfileState.OFFLINE: FormatAttribute.MODE, ProfileState.ONLINE: FormatAttribute.MODIFY_FIELDS},
    while_online=FormatAttribute.STATE,
    while_online_optional=FormatAttribute(0),
)

_EV_ONLINE = EvAttribute.STATE | EvAttribute.MODIFY_EV_STATE
_EV_ONLINE_OPTIONAL = EvAttribute.EVENT_MASK | EvAttribute.REPLACE_EV | EvAttribute.MODIFY_FIELDS
_EV_SHAPE = EvAttribute.MODE | EvAttribute.FMT_ID | EvAttribute.COUNT | EvAttribute.MODIFY_FIELDS
_EV_LIMITS = EvAttribute.MIN_ACTIVE | EvAttribute.EVENT_MASK

GENERATED_RULES = ProfileRules(
    name="EV, GENERATED",
    needs={ProfileState.OFFLINE: _EV_SHAPE, ProfileState.ONLINE: _EV_LIMITS},
    while_online=_EV_ONLINE,
    while_online_optional=_EV_ONLINE_OPTIONAL,
)

EXPLICIT_RULES = ProfileRules(
    name="EV, EXPLICIT",
    needs={ProfileState.OFFLINE: _EV_SHAPE, ProfileState.ONLINE: _EV_LIMITS | EvAttribute.REPLACE_EV},
    while_online=_EV_ONLINE,
    while_online_optional=_EV_ONLINE_OPTIONAL,
)

# The NIC chooses format, fields and number of EVs.
AUTO_RULES = ProfileRules(
    name="EV, AUTO",
    needs={ProfileState.OFFLINE: EvAttribute.MODE, ProfileState.ONLINE: _EV_LIMITS},
    while_online=EvAttribute.STATE,
    while_online_optional=EvAttribute.EVENT_MASK,
)

CC_RULES = ProfileRules(
    name="congestion control",
    needs={ProfileState.OFFLINE: CcAttribute.ALGORITHM, ProfileState.ONLINE: CcAttribute.CONFIG},
    while_online=CcAttribute.STATE,
    while_online_optional=CcAttribute.CONFIG,
)

ALL_RULES = (FORMAT_RULES, AUTO_RULES, EXPLICIT_RULES, GENERATED_RULES, CC_RULES)


def route(state: ProfileState, target: ProfileState) -> tuple[ProfileState, ...]:
    """Return the states entered on the way to `target`.

    From INIT to ONLINE is two transitions in one call, as in published examples of generated profiles. From ONLINE to
    INIT takes two calls.
    """
    if state == target:
        return ()
    if (state, target) in STEPS:
        return (target,)
    if state == ProfileState.INIT and target == ProfileState.ONLINE:
        return (ProfileState.OFFLINE, ProfileState.ONLINE)
    allowed = ", ".join(following.name for origin, following in STEPS if origin == state)
    raise InvalidArgumentError(f"state: from {state.name} to {target.name}; allowed from here: {allowed}")


def check_step(rules: ProfileRules, entered: ProfileState, known: IntFlag) -> None:
    """Raise if attributes required to enter a state are not `known`, naming them."""
    missing = rules.needs.get(entered, type(known)(0)) & ~known
    if missing:
        raise InvalidArgumentError(
            f"state: {rules.name} profile to {entered.name} needs {names(rules.needs[entered])}; "
            f"missing: {names(missing)}"
        )


def check_online_change(rules: ProfileRules, changed: IntFlag, can_modify_online: bool) -> None:
    """Raise for a change while ONLINE that requires OFFLINE."""
    allowed = rules.while_online | rules.while_online_optional if can_modify_online else rules.while_online
    refused = changed & ~allowed
    if refused:
        raise InvalidArgumentError(
            f"{names(refused)}: not while the {rules.name} profile is ONLINE; allowed: {names(allowed)}"
        )


def names(attributes: IntFlag) -> str:
    """Return the names of the set bits, lowest first."""
    return ", ".join(str(member.name) for member in type(attributes) if member in attributes)


def given(*attributes: tuple[Bits, object]) -> Bits:
    """Return the attributes with a value."""
    kind = type(attributes[0][0])
    return kind(sum(bit for bit, value in attributes if value is not None))
