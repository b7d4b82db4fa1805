"""EV format profiles, and the attributes of EV profiles: changes, device limits, and the resulting configuration."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from openmrc.ctl.profiles import ev_rules
from openmrc.ctl.profiles.ev_array import EvOpEntry
from openmrc.ctl.profiles.ev_format import WIDTH_CAPS, EvBitWidths, EvExpansion, EvField, EvFormatMode
from openmrc.ctl.profiles.ev_rules import UNSET, EvEntryState, EvMode, EvOp
from openmrc.ctl.profiles.refusals import ProfileRefusal, parts
from openmrc.ctl.profiles.states import (
    AUTO_RULES,
    EXPLICIT_RULES,
    FORMAT_RULES,
    GENERATED_RULES,
    EvAttribute,
    FormatAttribute,
    ProfileRules,
    ProfileState,
    check_change,
    check_known,
    given,
)
from openmrc.errors import InvalidArgumentError, TooBigError

_FORMAT_NAMES = {"state": FormatAttribute.STATE, "mode": FormatAttribute.MODE, "widths": FormatAttribute.MODIFY_FIELDS}


@dataclass(frozen=True, kw_only=True)
class FormatChange:
    """Changes of an EV format profile in one call; None: unchanged."""

    state: ProfileState | None = None
    mode: EvFormatMode | None = None
    widths: tuple[int, ...] | None = None  # MODIFY_FIELDS

    @property
    def mask(self) -> FormatAttribute:
        """Return the attributes that are set."""
        return given(FormatAttribute, self, _FORMAT_NAMES)


class EvFormatProfile:
    """A format being configured or in use."""

    def __init__(self) -> None:
        self.state = ProfileState.INIT
        self.mode: EvFormatMode | None = None
        self.widths: tuple[int, ...] | None = None
        self.online_profiles = 0  # EV profiles that are ONLINE with this format

    def modify(self, change: FormatChange) -> None:
        """Apply a change, or raise EINVAL, E2BIG (no packet carries it) or EBUSY (an EV profile is ONLINE with it)."""
        target = self.state if change.state is None else change.state
        check_change(FORMAT_RULES, self.state, target, change.mask, self.online_profiles)
        mode = self.mode if change.mode is None else change.mode
        widths = self.widths if change.widths is None else tuple(change.widths)
        _check_format(mode, widths)
        check_known(FORMAT_RULES, self.state, target, FormatChange(mode=mode, widths=widths).mask)
        is_new = target == ProfileState.INIT and self.state != target
        self.state = target
        self.mode, self.widths = (None, None) if is_new else (mode, widths)

    @property
    def format(self) -> EvBitWidths | None:
        """Return the format, once mode and widths are known."""
        if self.mode is None or self.widths is None:
            return None
        return EvBitWidths(self.mode, self.widths)


def _check_format(mode: EvFormatMode | None, widths: tuple[int, ...] | None) -> None:
    if mode is not None and mode not in WIDTH_CAPS:
        raise InvalidArgumentError(f"mode: {mode!r} is not one of STEV, SRV6, UDP")
    if mode is not None and widths is not None:
        EvBitWidths(mode, widths)


RULES = {EvMode.AUTO: AUTO_RULES, EvMode.EXPLICIT: EXPLICIT_RULES, EvMode.GENERATED: GENERATED_RULES}
EVENT_STATES = EvEntryState.GOOD | EvEntryState.ASSUMED_BAD  # states that events can be requested for


NAMED = {
    "mode": EvAttribute.MODE,
    "format": EvAttribute.FMT_ID,
    "count": EvAttribute.COUNT,
    "min_active": EvAttribute.MIN_ACTIVE,
    "event_mask": EvAttribute.EVENT_MASK,
    "fields": EvAttribute.MODIFY_FIELDS,
}  # attributes of a configuration, and of a change of it
_OPERATIONS = {EvOp.REPLACE_EV: EvAttribute.REPLACE_EV, EvOp.MODIFY_EV_STATE: EvAttribute.MODIFY_EV_STATE}


@dataclass(frozen=True)
class EvLimits:
    """Limits of a device (`mrc_ctl_device_attr.ev`); the defaults are ours."""

    ports: int = 8
    max_evs: int = 16_384  # per profile: 14 bits of a source port
    max_fields: int = 16

    @property
    def words(self) -> tuple[int, int, int]:
        """Return them as kernels take them, in the order of `ev_rules.LimitColumn`."""
        return self.ports, self.max_evs, self.max_fields


@dataclass(frozen=True)
class EvConfiguration:
    """The attributes of an EV profile, without its array; None: not known."""

    mode: EvMode | None = None
    format: EvFormatProfile | None = None  # FMT_ID
    count: int | None = None  # EVs
    min_active: int | None = None  # EVs that stay in use whatever their state
    event_mask: EvEntryState | None = None  # new states that are reported
    fields: tuple[EvField, ...] | None = None  # EV_FIELDS_OP MODIFY_FIELDS

    @property
    def known(self) -> EvAttribute:
        return given(EvAttribute, self, NAMED)

    @property
    def rules(self) -> ProfileRules:
        """Return the rules of its mode; before a mode is known, the strictest."""
        return EXPLICIT_RULES if self.mode is None else RULES[self.mode]

    @property
    def expansion(self) -> EvExpansion | None:
        """Return format and fields combined, once both are known; raise EINVAL if they do not fit."""
        form = None if self.format is None else self.format.format
        if form is None or self.fields is None:
            return None
        return EvExpansion(form, self.fields)


@dataclass(frozen=True, kw_only=True)
class EvProfileChange(EvConfiguration):
    """Changes of an EV profile in one call; None: unchanged."""

    state: ProfileState | None = None
    ev_op: EvOp | None = None
    entries: Sequence[EvOpEntry] = ()  # entries for ev_op

    @property
    def mask(self) -> EvAttribute:
        """Return the attributes that are set."""
        found = self.known if self.state is None else self.known | EvAttribute.STATE
        return found if self.ev_op is None else found | _OPERATIONS[self.ev_op]


def merged(present: EvConfiguration, change: EvProfileChange, limits: EvLimits) -> EvConfiguration:
    """Return the configuration after a change, checked."""
    wanted = replace(present, **{name: value for name in NAMED if (value := getattr(change, name)) is not None})
    mode, count = _word(wanted.mode), _word(wanted.count)
    min_active, event_mask, fields = _word(wanted.min_active), _word(wanted.event_mask), len(wanted.fields or ())
    found = ev_rules.attributes_verdict(mode, count, min_active, event_mask, fields, limits.words)
    refusal, detail = parts(found)
    if refusal != ProfileRefusal.NONE:
        _refuse(refusal, detail, wanted, limits)
    return wanted


def _word(value: int | None) -> int:
    return UNSET if value is None else int(value)


def _refuse(refusal: ProfileRefusal, detail: int, wanted: EvConfiguration, limits: EvLimits) -> NoReturn:
    match refusal:
        case ProfileRefusal.EV_MODE:
            raise InvalidArgumentError(f"mode: {wanted.mode!r} is not one of AUTO, EXPLICIT, GENERATED")
        case ProfileRefusal.COUNT_LOW:
            raise InvalidArgumentError(f"count: {wanted.count}; at least 1 EV is needed")
        case ProfileRefusal.COUNT_HIGH:
            raise TooBigError(f"count: {detail} EVs; the device holds {limits.max_evs} a profile", limits.max_evs)
        case ProfileRefusal.MIN_ACTIVE:
            most = ev_rules.most_active(_word(wanted.count), limits.words)
            raise InvalidArgumentError(f"min_active: {wanted.min_active} is not in 0..{most}")
        case ProfileRefusal.EVENT_MASK:
            asked = int(wanted.event_mask or 0)
            raise InvalidArgumentError(f"event_mask: {asked:#x}; only GOOD and ASSUMED_BAD can be asked")
    raise TooBigError(f"fields: {detail}; the device takes {limits.max_fields}", limits.max_fields)
