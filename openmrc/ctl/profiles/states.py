"""States of controller profiles as tables: attributes required by transitions, and changeable in each state.

EV format, EV and congestion control profiles go INIT -> OFFLINE -> ONLINE and back; they differ in the required
attributes. What the tables say of a change is told by two kernels, which the native library calls too.
The table of docs/entropy.md is generated from them by `spec.profile_table`.
Source: `mrc_ctl.h` of opencomputeproject/OCP-Multipath-Reliable-Connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import TypeVar

import numpy as np

from openmrc.core.jit import kernel
from openmrc.ctl.profiles.refusals import ProfileRefusal, parts, verdict
from openmrc.errors import BusyError, InvalidArgumentError

Bits = TypeVar("Bits", bound=IntFlag)


class ProfileState(IntEnum):
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
    busy: str  # what it is while it is in use, with a number
    needs: Mapping[ProfileState, IntFlag]
    while_online: IntFlag  # on a device with MODIFY_ONLINE, as all here are


FORMAT_RULES = ProfileRules(
    name="EV format",
    busy="EV format profile: {} EV profiles are ONLINE with it",
    needs={ProfileState.OFFLINE: FormatAttribute.MODE, ProfileState.ONLINE: FormatAttribute.MODIFY_FIELDS},
    while_online=FormatAttribute.STATE,
)

_EV_OP = EvAttribute.MODIFY_EV_STATE | EvAttribute.REPLACE_EV
_EV_ONLINE = EvAttribute.STATE | EvAttribute.EVENT_MASK | EvAttribute.MODIFY_FIELDS | _EV_OP
_EV_SHAPE = EvAttribute.MODE | EvAttribute.FMT_ID | EvAttribute.COUNT | EvAttribute.MODIFY_FIELDS
_EV_LIMITS = EvAttribute.MIN_ACTIVE | EvAttribute.EVENT_MASK

GENERATED_RULES = ProfileRules(
    name="EV, GENERATED",
    busy="EV profile: {} queue pairs use it",
    needs={ProfileState.OFFLINE: _EV_SHAPE, ProfileState.ONLINE: _EV_LIMITS},
    while_online=_EV_ONLINE,
)

EXPLICIT_RULES = ProfileRules(
    name="EV, EXPLICIT",
    busy="EV profile: {} queue pairs use it",
    needs={ProfileState.OFFLINE: _EV_SHAPE, ProfileState.ONLINE: _EV_LIMITS | EvAttribute.REPLACE_EV},
    while_online=_EV_ONLINE,
)

# The NIC chooses format, fields and number of EVs.
AUTO_RULES = ProfileRules(
    name="EV, AUTO",
    busy="EV profile: {} queue pairs use it",
    needs={ProfileState.OFFLINE: EvAttribute.MODE, ProfileState.ONLINE: _EV_LIMITS},
    while_online=EvAttribute.STATE | EvAttribute.EVENT_MASK,
)

CC_RULES = ProfileRules(
    name="congestion control",
    busy="congestion control profile: {} queue pairs use it",
    needs={ProfileState.OFFLINE: CcAttribute.ALGORITHM, ProfileState.ONLINE: CcAttribute.CONFIG},
    while_online=CcAttribute.STATE | CcAttribute.CONFIG,
)

ALL_RULES = (FORMAT_RULES, AUTO_RULES, EXPLICIT_RULES, GENERATED_RULES, CC_RULES)


class ProfileKind(IntEnum):
    """Kinds of profiles whose rules differ; the place in `ALL_RULES`."""

    FORMAT = 0
    AUTO = 1
    EXPLICIT = 2
    GENERATED = 3
    CC = 4


_NEEDS = np.array([[int(rules.needs.get(state, 0)) for state in ProfileState] for rules in ALL_RULES])
_ONLINE = np.array([int(rules.while_online) for rules in ALL_RULES])
_STEPS = np.array([[(state, target) in STEPS for target in ProfileState] for state in ProfileState]).astype(np.int64)
_FORMAT_KIND, _CC_KIND = int(ProfileKind.FORMAT), int(ProfileKind.CC)
_INIT, _OFFLINE, _ONLINE_STATE = map(int, ProfileState)
_FIELDS = int(EvAttribute.MODIFY_FIELDS)


@kernel
def change_verdict(kind: int, state: int, target: int, changed: int, users: int) -> int:
    """Return why a profile that `users` use cannot have these attributes changed on the way to a state; 0: it can."""
    leaves = state != target
    if leaves and not is_step(state, target):
        return verdict(ProfileRefusal.STEP, 0)
    if users > 0 and kind == _FORMAT_KIND:
        return verdict(ProfileRefusal.BUSY, users)
    if state != _ONLINE_STATE:
        return 0
    if changed & ~_ONLINE[kind] != 0:
        return verdict(ProfileRefusal.NOT_ONLINE, changed & ~_ONLINE[kind])
    if users > 0 and (leaves or (kind != _CC_KIND and changed & _FIELDS != 0)):
        return verdict(ProfileRefusal.BUSY, users)
    return 0


@kernel
def is_step(state: int, target: int) -> bool:
    """Whether one call may change the state so; from INIT to ONLINE is two steps, as in published examples."""
    return _STEPS[state, target] != 0 or (state == _INIT and target == _ONLINE_STATE)


@kernel
def missing_verdict(kind: int, state: int, target: int, known: int) -> int:
    """Return which attributes are missing for the first of the steps to a state that needs some; 0: none are."""
    if state == _INIT and target == _ONLINE_STATE and _NEEDS[kind, _OFFLINE] & ~known != 0:
        return verdict(ProfileRefusal.MISSING, _OFFLINE << 32 | (_NEEDS[kind, _OFFLINE] & ~known))
    if state == target or _NEEDS[kind, target] & ~known == 0:
        return 0
    return verdict(ProfileRefusal.MISSING, target << 32 | (_NEEDS[kind, target] & ~known))


def check_change(rules: ProfileRules, state: ProfileState, target: ProfileState, changed: IntFlag, users: int) -> None:
    """Raise if attributes may not change on the way to a state: EINVAL, or EBUSY while `users` use the profile."""
    refusal, detail = parts(change_verdict(ALL_RULES.index(rules), state, target, changed, users))
    match refusal:
        case ProfileRefusal.STEP:
            allowed = ", ".join(following.name for origin, following in STEPS if origin == state)
            raise InvalidArgumentError(f"state: from {state.name} to {target.name}; allowed from here: {allowed}")
        case ProfileRefusal.NOT_ONLINE:
            allowed, wrong = names(rules.while_online), names(type(changed)(detail))
            raise InvalidArgumentError(f"{wrong}: not while the {rules.name} profile is ONLINE; allowed: {allowed}")
        case ProfileRefusal.BUSY:
            raise BusyError(rules.busy.format(users))


def check_known(rules: ProfileRules, state: ProfileState, target: ProfileState, known: IntFlag) -> None:
    """Raise if attributes that are required on the way to a state are not `known`, naming them."""
    refusal, detail = parts(missing_verdict(ALL_RULES.index(rules), state, target, known))
    if refusal == ProfileRefusal.MISSING:
        entered, missing = ProfileState(detail >> 32), type(known)(detail & 0xFFFFFFFF)
        raise InvalidArgumentError(
            f"state: {rules.name} profile to {entered.name} needs {names(rules.needs[entered])}; "
            f"missing: {names(missing)}"
        )


def names(attributes: IntFlag) -> str:
    """Return the names of the set bits, lowest first."""
    return ", ".join(str(member.name) for member in type(attributes) if member in attributes)


def given(kind: type[Bits], attributes: object, named: Mapping[str, Bits]) -> Bits:
    """Return the attributes that have a value, by the names of their fields."""
    return kind(sum(bit for name, bit in named.items() if getattr(attributes, name) is not None))
