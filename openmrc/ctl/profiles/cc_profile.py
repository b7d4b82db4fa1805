"""Congestion control profiles: an algorithm of the device and its configuration (MRC §10; `mrc_ctl.h`)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmrc.ctl.profiles.states import CC_RULES, CcAttribute, ProfileState, check_change, check_known, given
from openmrc.errors import InvalidArgumentError
from openmrc.units import PS_PER_NS

NSCC_NAME = "uet-1.0-nscc"
NO_CONTROL = ""  # in C a null pointer: no congestion control


CcConfig = Mapping[str, float]  # fields of `CC_FIELDS`; those that are missing are as the endpoint chose them


@dataclass(frozen=True)
class CcField:
    """A field of `mrc_ctl_cc_nscc_cfg`: what it may be, and which tunable of the engine it is."""

    kind: type[float]
    tunable: str  # field of a row of parameters
    least: float
    most: float
    scale: int = 1  # the engine's unit is that much smaller

    def value(self, name: str, asked: float) -> float:
        """Return a value of the field's type; EINVAL if it is none."""
        found = self.kind(asked) if math.isfinite(asked) else asked
        if found != asked or not self.least <= found <= self.most:
            kind = {bool: "a flag", int: "a whole number", float: "a number"}[self.kind]
            above = "0" if self.least == 0 else "above 0"
            raise InvalidArgumentError(f"config.{name}: {asked} is not {kind} in {above}..{self.most}")
        return found


_POSITIVE = 1e-9  # a window or a delay of zero would stop the sender
_LONGEST = 10**12  # ns: times stay below the engine's clock
CC_FIELDS = {
    "disable_qa": CcField(bool, "disable_qa", 0, 1),
    "adjust_bytes_threshold": CcField(int, "adjust_bytes", _POSITIVE, 1 << 40),
    "adjust_period_threshold": CcField(int, "adjust_period", _POSITIVE, _LONGEST, PS_PER_NS),
    "base_rtt": CcField(int, "base_rtt", _POSITIVE, _LONGEST, PS_PER_NS),
    "eta": CcField(float, "eta", 0, 2.0**40),  # bytes
    "fi": CcField(float, "fi", 0, 2.0**40),  # bytes
    "fi_scale": CcField(float, "fi_scale", 0, 1e6),
    "gamma": CcField(float, "gamma", 0, 1.0),
    "max_md_jump": CcField(float, "max_md_jump", _POSITIVE, 1.0),
    "max_cwnd": CcField(int, "max_cwnd", _POSITIVE, 1 << 40),  # bytes
    "qa_gate": CcField(int, "qa_gate", 0, 62),
    "qa_threshold": CcField(int, "qa_threshold", 0, _LONGEST, PS_PER_NS),
    "target_delay": CcField(int, "target_delay", _POSITIVE, _LONGEST, PS_PER_NS),
}


def checked(config: CcConfig) -> CcConfig:
    """Return the values with the types of their fields; EINVAL names the first that is none."""
    for name in config:
        if name not in CC_FIELDS:
            raise InvalidArgumentError(f"config: no {name!r}; there are {', '.join(CC_FIELDS)}")
    return {name: CC_FIELDS[name].value(name, value) for name, value in config.items()}


_NAMED = {"state": CcAttribute.STATE, "algorithm": CcAttribute.ALGORITHM, "config": CcAttribute.CONFIG}


@dataclass(frozen=True, kw_only=True)
class CcChange:
    """Changes of a congestion control profile in one call; None: unchanged."""

    state: ProfileState | None = None
    algorithm: str | None = None
    config: CcConfig | None = None

    @property
    def mask(self) -> CcAttribute:
        """Return the attributes that are set."""
        return given(CcAttribute, self, _NAMED)


class CcProfile:
    """An algorithm being configured or in use."""

    def __init__(self, algorithms: Sequence[str]) -> None:
        self._algorithms = algorithms  # of the device
        self.state = ProfileState.INIT
        self.algorithm: str | None = None
        self.config: CcConfig | None = None
        self.active_qps = 0  # queue pairs that use it now

    def modify(self, change: CcChange) -> None:
        """Apply a change; EINVAL, or EBUSY while queue pairs use it."""
        target = self.state if change.state is None else change.state
        check_change(CC_RULES, self.state, target, change.mask, self.active_qps)
        algorithm = self.algorithm if change.algorithm is None else change.algorithm
        config = self.config if change.config is None else checked(change.config)
        if algorithm is not None and algorithm not in (*self._algorithms, NO_CONTROL):
            raise InvalidArgumentError(f"algorithm: {algorithm!r} is not one of {', '.join(self._algorithms)}")
        known = CcChange(algorithm=algorithm, config=config).mask
        check_known(CC_RULES, self.state, target, known)
        is_new = target == ProfileState.INIT and self.state != target
        self.state = target
        self.algorithm, self.config = (None, None) if is_new else (algorithm, config)

    def check_usable(self) -> None:
        """Raise EINVAL unless queue pairs can use it."""
        if self.state != ProfileState.ONLINE:
            raise InvalidArgumentError(
                f"congestion control profile: {self.state.name}; queue pairs can use it when ONLINE"
            )
