"""EV format, EV and congestion control profiles, with the operations on the EVs of a profile."""

from dataclasses import asdict
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


class FieldSpec(msgspec.Struct, kw_only=True):
    """One field of an EV profile (`mrc_ctl_ev_field`)."""

    width: int
    init_val: int = 0
    min_val: int = 0
    max_val: int = 0
    mask: int = 0


class ModifyFormat(msgspec.Struct, kw_only=True):
    """Changes of an EV format profile; None: unchanged."""

    number: int
    state: str | None = None
    mode: str | None = None
    widths: list[int] | None = None


class FormatReport(msgspec.Struct, kw_only=True):
    """An EV format profile."""

    number: int
    state: str
    mode: str = ""
    widths: list[int] = []


class ModifyEvProfile(msgspec.Struct, kw_only=True):
    """Changes of an EV profile; None: unchanged."""

    number: int
    state: str | None = None
    mode: str | None = None
    format: int | None = None
    count: int | None = None
    min_active: int | None = None
    event_mask: list[str] | None = None
    fields: list[FieldSpec] | None = None
    operation: str | None = None  # "replace" or "state", with `entries`
    entries: list[EvOpRequest] = []


class EvProfileReport(msgspec.Struct, kw_only=True):
    """An EV profile without its array."""

    number: int
    state: str
    mode: str = ""
    format: int = 0
    count: int = 0
    min_active: int = 0
    event_mask: list[str] = []
    fields: list[FieldSpec] = []
    active_qps: int = 0


class EvStatesQuery(msgspec.Struct, kw_only=True):
    """EVs of a profile: those that are named (QUERY_EV_STATE), or all (QUERY_EV_ARRAY) if there is room for them."""

    number: int
    evs: list[EvRef] | None = None
    room: int | None = None  # entries; None: as many as there are


class EvEntryReport(msgspec.Struct, kw_only=True):
    """An EV of a profile and its state; `wire` are its bits in a packet."""

    ev: EvRef
    state: str
    wire: str = ""


class EvStatesReply(msgspec.Struct, kw_only=True):
    """EVs with their states."""

    entries: list[EvEntryReport]


class ModifyCc(msgspec.Struct, kw_only=True):
    """Changes of a congestion control profile; None: unchanged."""

    number: int
    state: str | None = None
    algorithm: str | None = None  # empty: no congestion control
    config: dict[str, int | float] | None = None


class CcReport(msgspec.Struct, kw_only=True):
    """A congestion control profile."""

    number: int
    state: str
    algorithm: str = ""
    config: dict[str, int | float] = {}
    active_qps: int = 0


class UseProfiles(msgspec.Struct, kw_only=True):
    """Profiles of queue pairs that name none; None: unchanged, 0: the endpoint's own."""

    ev: int | None = None
    cc: int | None = None


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


class ProfilesQuery(msgspec.Struct):
    """What profiles there are."""


def profiles(device: CtlDevice, request: ProfilesQuery) -> ProfilesReply:
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


def modify_format(device: CtlDevice, request: ModifyFormat) -> FormatReport:
    """Change an EV format profile."""
    change = FormatChange(
        state=_member(ProfileState, request.state, "state"),
        mode=_member(EvFormatMode, request.mode, "mode"),
        widths=None if request.widths is None else tuple(request.widths),
    )
    device.profiles.modify_format(request.number, change)
    return _format_report(device, request.number)


def modify_ev_profile(device: CtlDevice, request: ModifyEvProfile) -> EvProfileReport:
    """Change an EV profile: attributes, state, EVs."""
    device.profiles.modify_ev(request.number, _ev_change(device, request))
    return _ev_report(device, request.number)


def query_evs(device: CtlDevice, request: EvStatesQuery) -> EvStatesReply:
    """Return the states of EVs of a profile."""
    profile = device.profiles.store.ev(request.number)
    with device.profiles.lock:
        if request.evs is not None:
            evs = [_entry(each, f"evs[{index}]") for index, each in enumerate(request.evs)]
            found = list(zip(evs, profile.query_states(evs), strict=True))
        else:
            found = profile.query_array(request.room)
        expansion = profile.configuration.expansion
        return EvStatesReply(
            entries=[
                EvEntryReport(
                    ev=_ref(ev), state=_name(state), wire=_hex(expansion.expand(ev.value)) if expansion else ""
                )
                for ev, state in found
            ]
        )


def modify_cc(device: CtlDevice, request: ModifyCc) -> CcReport:
    """Change a congestion control profile."""
    state = _member(ProfileState, request.state, "state")
    change = CcChange(state=state, algorithm=request.algorithm, config=request.config)
    device.profiles.modify_cc(request.number, change)
    return _cc_report(device, request.number)


def use_profiles(device: CtlDevice, request: UseProfiles) -> ProfilesReply:
    """Set the profiles of queue pairs that name none."""
    old = device.profiles.store.defaults
    device.profiles.use(ProfileIds(old.ev if request.ev is None else request.ev,
                                   old.cc if request.cc is None else request.cc))  # fmt: skip
    return profiles(device, ProfilesQuery())


def _ev_change(device: CtlDevice, request: ModifyEvProfile) -> EvProfileChange:
    if request.operation is not None and request.operation not in _OPERATIONS:
        raise InvalidArgumentError(f"operation: {request.operation!r} is not one of {', '.join(_OPERATIONS)}")
    mask = None
    if request.event_mask is not None:
        mask = EvEntryState(0)
        for name in request.event_mask:
            mask |= _member(EvEntryState, name, "event_mask") or EvEntryState(0)
    return EvProfileChange(
        state=_member(ProfileState, request.state, "state"),
        mode=_member(EvMode, request.mode, "mode"),
        format=None if request.format is None else device.profiles.store.format(request.format),
        count=request.count,
        min_active=request.min_active,
        event_mask=mask,
        fields=None if request.fields is None else tuple(EvField(**msgspec.structs.asdict(f)) for f in request.fields),
        ev_op=None if request.operation is None else _OPERATIONS[request.operation],
        entries=[_op_entry(entry, f"entries[{index}]") for index, entry in enumerate(request.entries)],
    )


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
        fields=[FieldSpec(**asdict(field)) for field in profile.query_fields()],
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
