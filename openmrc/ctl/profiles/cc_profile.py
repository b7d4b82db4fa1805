"""Congestion control profiles: an algorithm of the device and its configuration (MRC §10; `mrc_ctl.h`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from openmrc.ctl.profiles.states import CC_RULES, CcAttribute, ProfileState, check_change, check_known, given
from openmrc.errors import InvalidArgumentError
from openmrc.units import PS_PER_NS

NSCC_NAME = "uet-1.0-nscc"
NO_CONTROL = ""  # in C a null pointer: no congestion control


@dataclass(frozen=True, kw_only=True)
class CcConfig:
    """Configuration of NSCC (`mrc_ctl_cc_nscc_cfg`); None: as the endpoint chose it for its network."""

    disable_qa: bool | None = None
    adjust_bytes_threshold: int | None = None  # bytes
    adjust_period_threshold: int | None = None  # ns
    base_rtt: int | None = None  # ns
    eta: float | None = None  # bytes
    fi: float | None = None  # bytes
    fi_scale: float | None = None
    gamma: float | None = None
    max_md_jump: float | None = None
    max_cwnd: int | None = None  # bytes
    qa_gate: int | None = None
    qa_threshold: int | None = None  # ns
    target_delay: int | None = None  # ns


@dataclass(frozen=True)
class CcRange:
    """What a configured value may be, and which tunable of the engine it is."""

    tunable: str  # field of a row of parameters
    least: float
    most: float
    scale: int = 1  # the engine's unit is that much smaller


_POSITIVE = 1e-9  # a window or a delay of zero would stop the sender
_LONGEST = 10**12  # ns: times stay below the engine's clock
CC_RANGES = {
    "disable_qa": CcRange("disable_qa", 0, 1),
    "adjust_bytes_threshold": CcRange("adjust_bytes", _POSITIVE, 1 << 40),
    "adjust_period_threshold": CcRange("adjust_period", _POSITIVE, _LONGEST, PS_PER_NS),
    "base_rtt": CcRange("base_rtt", _POSITIVE, _LONGEST, PS_PER_NS),
    "eta": CcRange("eta", 0, 2.0**40),
    "fi": CcRange("fi", 0, 2.0**40),
    "fi_scale": CcRange("fi_scale", 0, 1e6),
    "gamma": CcRange("gamma", 0, 1.0),
    "max_md_jump": CcRange("max_md_jump", _POSITIVE, 1.0),
    "max_cwnd": CcRange("max_cwnd", _POSITIVE, 1 << 40),
    "qa_gate": CcRange("qa_gate", 0, 62),
    "qa_threshold": CcRange("qa_threshold", 0, _LONGEST, PS_PER_NS),
    "target_delay": CcRange("target_delay", _POSITIVE, _LONGEST, PS_PER_NS),
}


@dataclass(frozen=True, kw_only=True)
class CcChange:
    """Changes of a congestion control profile in one call; None: unchanged."""

    state: ProfileState | None = None
    algorithm: str | None = None
    config: CcConfig | None = None

    @property
    def mask(self) -> CcAttribute:
        """Return the attributes that are set."""
        return given(
            (CcAttribute.STATE, self.state),
            (CcAttribute.ALGORITHM, self.algorithm),
            (CcAttribute.CONFIG, self.config),
        )


class CcProfile:
    """An algorithm being configured or in use."""

    def __init__(self, algorithms: Sequence[str], modify_online: bool = True) -> None:
        self._algorithms = algorithms  # of the device
        self._modify_online = modify_online
        self.state = ProfileState.INIT
        self.algorithm: str | None = None
        self.config: CcConfig | None = None
        self.active_qps = 0  # queue pairs that use it now

    def modify(self, change: CcChange) -> None:
        """Apply a change; EINVAL, or EBUSY while queue pairs use it."""
        target = self.state if change.state is None else change.state
        check_change(CC_RULES, self.state, target, change.mask, self.active_qps, self._modify_online)
        algorithm = self.algorithm if change.algorithm is None else change.algorithm
        config = self.config if change.config is None else change.config
        if algorithm is not None and algorithm not in (*self._algorithms, NO_CONTROL):
            raise InvalidArgumentError(f"algorithm: {algorithm!r} is not one of {', '.join(self._algorithms)}")
        if config is not None:
            _check_config(config)
        known = given((CcAttribute.ALGORITHM, algorithm), (CcAttribute.CONFIG, config))
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


def _check_config(config: CcConfig) -> None:
    for name, value in vars(config).items():
        allowed = CC_RANGES[name]
        if value is not None and not (math.isfinite(value) and allowed.least <= value <= allowed.most):
            above = "0" if allowed.least == 0 else "above 0"
            raise InvalidArgumentError(f"config.{name}: {value} is not in {above}..{allowed.most}")
