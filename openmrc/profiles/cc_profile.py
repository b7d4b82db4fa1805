"""Congestion control profiles: an algorithm of the device and its configuration (MRC §10; `mrc_ctl.h`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from openmrc.errors import BusyError, InvalidArgumentError
from openmrc.profiles.profile_states import (
    CC_RULES,
    CcAttribute,
    ProfileState,
    check_online_change,
    check_step,
    given,
    route,
)

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


# Greatest value of each; a window or a delay of zero would stop the sender. Times stay below the engine's clock.
_MOST = {
    "adjust_bytes_threshold": 1 << 40, "adjust_period_threshold": 10**12, "base_rtt": 10**12, "eta": 2.0**40,
    "fi": 2.0**40, "fi_scale": 1e6, "gamma": 1.0, "max_md_jump": 1.0, "max_cwnd": 1 << 40, "qa_gate": 62,
    "qa_threshold": 10**12, "target_delay": 10**12,
}  # fmt: skip
_MAY_BE_ZERO = {"eta", "fi", "fi_scale", "gamma", "qa_gate", "qa_threshold"}


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
        entered = route(self.state, target)
        if self.state == ProfileState.ONLINE:
            check_online_change(CC_RULES, change.mask, self._modify_online)
            if self.active_qps and entered:
                raise BusyError(f"congestion control profile: {self.active_qps} queue pairs use it")
        algorithm = self.algorithm if change.algorithm is None else change.algorithm
        config = self.config if change.config is None else change.config
        if algorithm is not None and algorithm not in (*self._algorithms, NO_CONTROL):
            raise InvalidArgumentError(f"algorithm: {algorithm!r} is not one of {', '.join(self._algorithms)}")
        if config is not None:
            _check_config(config)
        known = given((CcAttribute.ALGORITHM, algorithm), (CcAttribute.CONFIG, config))
        for state in entered:
            check_step(CC_RULES, state, known)
        self.state = target
        is_new = target == ProfileState.INIT and bool(entered)
        self.algorithm, self.config = (None, None) if is_new else (algorithm, config)

    def check_usable(self) -> None:
        """Raise EINVAL unless queue pairs can use it."""
        if self.state != ProfileState.ONLINE:
            raise InvalidArgumentError(
                f"congestion control profile: {self.state.name}; queue pairs can use it when ONLINE"
            )


def _check_config(config: CcConfig) -> None:
    for field in fields(config):
        value = getattr(config, field.name)
        if value is None or field.name == "disable_qa":
            continue
        least = 0 if field.name in _MAY_BE_ZERO else 1e-9
        if not (math.isfinite(value) and least <= value <= _MOST[field.name]):
            raise InvalidArgumentError(
                f"config.{field.name}: {value} is not in {'0' if least == 0 else 'above 0'}..{_MOST[field.name]}"
            )
