"""EV format, EV and congestion control profiles, with the operations on the EVs of a profile."""

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import TypeVar, cast

import msgspec

from openmrc.ctl.device import CtlDevice
from openmrc.ctl.profiles.cc_profile import CcChange
from openmrc.ctl.profiles.ev_array import EvEntry, EvOpEntry
from openmrc.ctl.profiles.ev_configuration import EvProfileChange, FormatChange
from openmrc.ctl.profiles.ev_format import EV_BYTES, EvField, EvFormatMode
from openmrc.ctl.profiles.ev_rules import EvEntryState, EvMode, EvOp
from openmrc.ctl.profiles.states import ProfileState
from openmrc.ctl.profiles.store import ALGORITHMS, MOST_EVS, MOST_PROFILES, ProfileIds
from openmrc.errors import InvalidArgumentError

N = TypeVar("N", bound=IntEnum | IntFlag)
_OPERATIONS = {"replace": EvOp.REPLACE_EV, "state": EvOp.MODIFY_EV_STATE}


class EvRef(msgspec.Struct, frozen=True, kw_only=True):
    """An EV of a profile: its leading bytes in hexadecimal, and its port; empty and port 0: an unpopulated entry."""

    ev: str = ""
    port: int = 0


class EvOpRequest(msgspec.Struct, kw_only=True):
    """One entry of a batch."""

    ev: EvRef
    state: str = "good"
    new: EvRef | None = None
    all_copies: bool = False


class FormatReport(msgspec.Struct, kw_only=True):
    """An EV format profile."""

    number: int
    state: str
    mode: str = ""
    widths: list[int] = []


class EvProfileReport(msgspec.Struct, kw_only=True):
    """An EV profile without its array."""

    number: int
    state: str
    mode: str = ""
    format: int = 0
    count: int = 0
    min_active: int = 0
    event_mask: list[str] = []
    fields: list[EvField] = []
    active_qps: int = 0


class EvEntryReport(msgspec.Struct, kw_only=True):
    """An EV of a profile and its state; `wire` are its bits in a packet."""

    ev: EvRef
    state: str
    wire: str = ""


class EvStatesReply(msgspec.Struct, kw_only=True):
    """EVs with their states."""

    entries: list[EvEntryReport]


class CcReport(msgspec.Struct, kw_only=True):
    """A congestion control profile."""

    number: int
    state: str
    algorithm: str = ""
    config: dict[str, int | float] = {}
    active_qps: int = 0


class ProfilesReply(msgspec.Struct, kw_only=True):
    """All profiles that are not in INIT, the defaults, and the limits of the device."""

    formats: list[FormatReport]
    evs: list[EvProfileReport]
    ccs: list[CcReport]
    default_ev: int
    default_cc: int
    most: int = MOST_PROFILES  # of each kind
    most_evs: int = MOST_EVS  # in all
    free_evs: int = 0
    evs_per_profile: int = 0
    format_mode: str = ""
    algorithms: tuple[str, ...] = ALGORITHMS


def profiles(device: CtlDevice) -> ProfilesReply:
    """Return all profiles that are configured."""
    numbers = range(1, MOST_PROFILES + 1)
    store = device.profiles.store
    return ProfilesReply(
        formats=[_format_report(device, each) for each in numbers if store.format(each).state != ProfileState.INIT],
        evs=[_ev_report(device, each) for each in numbers if store.ev(each).state != ProfileState.INIT],
        ccs=[_cc_report(device, each) for each in numbers if store.cc(each).state != ProfileState.INIT],
        default_ev=store.defaults.ev,
        default_cc=store.defaults.cc,
        free_evs=store.free_evs,
        evs_per_profile=store.limits.max_evs,
        format_mode=_name(store.mode),
    )


# Changes: what is None stays as it is.


def modify_format(
    device: CtlDevice,
    *,
    number: int,
    state: str | None = None,
    mode: str | None = None,
    widths: tuple[int, ...] | None = None,
) -> FormatReport:
    """Change an EV format profile."""
    change = FormatChange(
        state=_member(ProfileState, state, "state"), mode=_member(EvFormatMode, mode, "mode"), widths=widths
    )
    device.profiles.modify_format(number, change)
    return _format_report(device, number)


def modify_ev_profile(
    device: CtlDevice,
    *,
    number: int,
    state: str | None = None,
    mode: str | None = None,
    format: int | None = None,
    count: int | None = None,
    min_active: int | None = None,
    event_mask: list[str] | None = None,
    fields: tuple[EvField, ...] | None = None,
    operation: str | None = None,
    entries: Sequence[EvOpRequest] = (),
) -> EvProfileReport:
    """Change an EV profile: attributes, state, and by an operation, "replace" or "state", entries of its array."""
    if operation is not None and operation not in _OPERATIONS:
        raise InvalidArgumentError(f"operation: {operation!r} is not one of {', '.join(_OPERATIONS)}")
    change = EvProfileChange(
        state=_member(ProfileState, state, "state"),
        mode=_member(EvMode, mode, "mode"),
        format=None if format is None else device.profiles.store.format(format),
        count=count,
        min_active=min_active,
        event_mask=None if event_mask is None else _mask(event_mask),
        fields=fields,
        ev_op=None if operation is None else _OPERATIONS[operation],
        entries=[_op_entry(entry, f"entries[{index}]") for index, entry in enumerate(entries)],
    )
    device.profiles.modify_ev(number, change)
    return _ev_report(device, number)


def query_evs(device: CtlDevice, *, number: int, evs: list[EvRef] | None = None) -> EvStatesReply:
    """Return the states of EVs of a profile: `evs` (QUERY_EV_STATE), or all (QUERY_EV_ARRAY)."""
    profile = device.profiles.store.ev(number)
    with device.profiles.lock:
        if evs is not None:
            named = [_entry(each, f"evs[{index}]") for index, each in enumerate(evs)]
            found = list(zip(named, profile.query_states(named), strict=True))
        else:
            found = profile.array.entries()
        expansion = profile.configuration.expansion
        return EvStatesReply(
            entries=[
                EvEntryReport(
                    ev=_ref(ev), state=_name(state), wire=_hex(expansion.expand(ev.value)) if expansion else ""
                )
                for ev, state in found
            ]
        )


def modify_cc(
    device: CtlDevice,
    *,
    number: int,
    state: str | None = None,
    algorithm: str | None = None,
    config: dict[str, int | float] | None = None,
) -> CcReport:
    """Change a congestion control profile; an empty algorithm is no congestion control."""
    change = CcChange(state=_member(ProfileState, state, "state"), algorithm=algorithm, config=config)
    device.profiles.modify_cc(number, change)
    return _cc_report(device, number)


def use_profiles(device: CtlDevice, *, ev: int | None = None, cc: int | None = None) -> ProfilesReply:
    """Set the profiles of queue pairs that name none; 0: the endpoint's own."""
    old = device.profiles.store.defaults
    device.profiles.use(ProfileIds(old.ev if ev is None else ev, old.cc if cc is None else cc))
    return profiles(device)


def _mask(names: list[str]) -> EvEntryState:
    mask = EvEntryState(0)
    for name in names:
        mask |= _member(EvEntryState, name, "event_mask") or EvEntryState(0)
    return mask


def _op_entry(entry: EvOpRequest, name: str) -> EvOpEntry:
    state = _member(EvEntryState, entry.state, f"{name}.state")
    assert state is not None
    new = None if entry.new is None else _entry(entry.new, f"{name}.ev_new")
    return EvOpEntry(_entry(entry.ev, f"{name}.ev"), state, new, entry.all_copies)


def _entry(ref: EvRef, name: str) -> EvEntry:
    try:
        value = bytes.fromhex(ref.ev + "0" * (len(ref.ev) % 2))
    except ValueError as error:
        raise InvalidArgumentError(f"{name}: {ref.ev!r} is not hexadecimal") from error
    if len(value) > EV_BYTES:
        raise InvalidArgumentError(f"{name}: {len(value)} bytes; an EV has {EV_BYTES}")
    return EvEntry(value.ljust(EV_BYTES, b"\0"), ref.port)


def _ref(ev: EvEntry) -> EvRef:
    return EvRef(ev=_hex(ev.value) if ev.port else "", port=ev.port)


def _hex(value: bytes) -> str:
    return value.rstrip(b"\0").hex() or "00"


def _format_report(device: CtlDevice, number: int) -> FormatReport:
    form = device.profiles.store.format(number)
    return FormatReport(number=number, state=form.state.name, mode=_name(form.mode), widths=list(form.widths or ()))


def _ev_report(device: CtlDevice, number: int) -> EvProfileReport:
    profile = device.profiles.store.ev(number)
    known = profile.configuration
    return EvProfileReport(
        number=number,
        state=profile.state.name,
        mode=_name(known.mode),
        format=device.profiles.store.number_of(known.format),
        count=len(profile.array) or known.count or 0,
        min_active=known.min_active or 0,
        event_mask=[str(each.name) for each in EvEntryState if known.event_mask and each in known.event_mask],
        fields=list(known.fields or ()),
        active_qps=profile.active_qps,
    )


def _cc_report(device: CtlDevice, number: int) -> CcReport:
    profile = device.profiles.store.cc(number)
    return CcReport(
        number=number,
        state=profile.state.name,
        algorithm=profile.algorithm or "",
        config=dict(profile.config or {}),
        active_qps=profile.active_qps,
    )


def _member(kind: type[N], name: str | None, what: str) -> N | None:
    """Return the member of this name in any case; EINVAL lists those there are."""
    if name is None:
        return None
    for each in kind:
        if str(each.name).lower() == name.lower():
            return cast("N", each)
    raise InvalidArgumentError(f"{what}: {name!r} is not one of {', '.join(str(each.name) for each in kind)}")


def _name(member: IntEnum | IntFlag | None) -> str:
    return "" if member is None else str(member.name)
