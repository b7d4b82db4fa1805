"""The profiles of one endpoint by number: EV formats, EVs, congestion control.

All exist from the start, in INIT. Number 0 is the endpoint's own: EVs and congestion control that it chose itself
(AUTO), which queue pairs use that name no other. A controller may name another profile that those queue pairs use from
now on (`defaults`).
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from openmrc.ctl.profiles.cc_profile import NSCC_NAME, CcProfile
from openmrc.ctl.profiles.ev_configuration import EvFormatProfile, EvLimits, FormatChange
from openmrc.ctl.profiles.ev_format import EvFormatMode
from openmrc.ctl.profiles.ev_profile import EvCarrier, EvProfile
from openmrc.errors import InvalidArgumentError, TooBigError

MOST_PROFILES = 16  # of each kind, beside number 0
MOST_EVS = 1 << 16  # of all profiles
ALGORITHMS = (NSCC_NAME,)

Any_ = TypeVar("Any_")


class ProfileIds(NamedTuple):
    """The profiles of a queue pair; 0: the endpoint's own."""

    ev: int = 0
    cc: int = 0


class ProfileStore:
    def __init__(self, limits: EvLimits, carrier: EvCarrier, mode: EvFormatMode) -> None:
        """Hold profiles in INIT for a device that carries EVs of this format."""
        self.limits = limits
        self.mode = mode
        self._formats = [EvFormatProfile() for _ in range(MOST_PROFILES)]
        self._evs = [EvProfile(limits, carrier, seed=number + 1) for number in range(MOST_PROFILES)]
        self._ccs = [CcProfile(ALGORITHMS) for _ in range(MOST_PROFILES)]
        self.defaults = ProfileIds()

    def format(self, number: int) -> EvFormatProfile:
        """Return an EV format profile; EINVAL if there is none of this number."""
        return _numbered(self._formats, number, "format")

    def ev(self, number: int) -> EvProfile:
        """Return an EV profile; EINVAL if there is none of this number."""
        return _numbered(self._evs, number, "EV profile")

    def cc(self, number: int) -> CcProfile:
        """Return a congestion control profile; EINVAL if there is none of this number."""
        return _numbered(self._ccs, number, "congestion control profile")

    def modify_format(self, number: int, change: FormatChange) -> None:
        """Change an EV format profile; EINVAL also for a format that this device does not carry."""
        form = self.format(number)
        if change.mode is not None and change.mode != self.mode:
            raise InvalidArgumentError(f"mode: {change.mode.name}; this endpoint carries {self.mode.name}")
        form.modify(change)

    def check_free_evs(self, number: int, count: int | None) -> None:
        """Raise E2BIG if a profile of `count` EVs would exceed what the device holds in all."""
        left = self.free_evs + len(self.ev(number).array)
        if count is not None and count > left:
            raise TooBigError(f"count: {count} EVs; {left} of {MOST_EVS} are left", left)

    @property
    def free_evs(self) -> int:
        """How many EVs are left of those that the device holds."""
        return MOST_EVS - sum(len(profile.array) for profile in self._evs)

    def number_of(self, form: EvFormatProfile | None) -> int:
        """Return the number of an EV format profile; 0: none."""
        return self._formats.index(form) + 1 if form is not None else 0

    def use(self, defaults: ProfileIds) -> None:
        """Have queue pairs that name no profile use these from now on; EINVAL unless they are ONLINE."""
        self.check_usable(defaults)
        self.defaults = defaults

    def resolved(self, wanted: ProfileIds) -> ProfileIds:
        """Return the profiles that a queue pair gets which wants these."""
        return ProfileIds(wanted.ev or self.defaults.ev, wanted.cc or self.defaults.cc)

    def check_usable(self, ids: ProfileIds) -> None:
        """Raise EINVAL unless queue pairs can use these profiles."""
        for each in self._named(ids):
            each.check_usable()

    def bind(self, ids: ProfileIds) -> None:
        """Count a queue pair that uses these profiles; EINVAL unless they are ONLINE."""
        self.check_usable(ids)
        for each in self._named(ids):
            each.active_qps += 1

    def unbind(self, ids: ProfileIds) -> None:
        """Count a queue pair out."""
        for each in self._named(ids):
            each.active_qps -= 1

    def _named(self, ids: ProfileIds) -> list[EvProfile | CcProfile]:
        evs, ccs = [self.ev(ids.ev)] if ids.ev else [], [self.cc(ids.cc)] if ids.cc else []
        return [*evs, *ccs]


def _numbered(profiles: Sequence[Any_], number: int, kind: str) -> Any_:
    if not 1 <= number <= len(profiles):
        raise InvalidArgumentError(f"{kind}: {number} is not in 1..{len(profiles)}")
    return profiles[number - 1]
