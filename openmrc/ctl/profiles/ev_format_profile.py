"""EV format profiles: a format being configured or in use (MRC §10; `mrc_ctl.h`)."""

from __future__ import annotations

from dataclasses import dataclass

from openmrc.ctl.profiles.ev_format import WIDTH_CAPS, EvBitWidths, EvFormatMode
from openmrc.ctl.profiles.states import (
    FORMAT_RULES,
    FormatAttribute,
    ProfileState,
    check_change,
    check_known,
    given,
)
from openmrc.errors import InvalidArgumentError


@dataclass(frozen=True, kw_only=True)
class FormatChange:
    """Changes of an EV format profile in one call; None: unchanged."""

    state: ProfileState | None = None
    mode: EvFormatMode | None = None
    widths: tuple[int, ...] | None = None  # MODIFY_FIELDS

    @property
    def mask(self) -> FormatAttribute:
        """Return the attributes that are set."""
        return given(
            (FormatAttribute.STATE, self.state),
            (FormatAttribute.MODE, self.mode),
            (FormatAttribute.MODIFY_FIELDS, self.widths),
        )


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
        check_change(FORMAT_RULES, self.state, target, change.mask, self.online_profiles, can_modify=False)
        mode = self.mode if change.mode is None else change.mode
        widths = self.widths if change.widths is None else tuple(change.widths)
        _check_format(mode, widths)
        known = given((FormatAttribute.MODE, mode), (FormatAttribute.MODIFY_FIELDS, widths))
        check_known(FORMAT_RULES, self.state, target, known)
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
