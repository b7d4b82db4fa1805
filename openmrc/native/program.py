"""The environment in which a program of others finds our device instead of, or beside, those of the kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from openmrc.faults import Schedule
from openmrc.native.fault_steps import fault_steps


def environment(
    inherited: Mapping[str, str],
    library: Path,
    planes: Sequence[str],
    schedule: Schedule | None,
    emulated: str = "",
) -> dict[str, str]:
    """Return `inherited` with the library preloaded and its settings; what is not given stays as it is.

    ConfigError: the schedule names a plane that is not there.
    """
    preload = os.pathsep.join(filter(None, (str(library), inherited.get("LD_PRELOAD"))))
    settings = {**inherited, "LD_PRELOAD": preload}
    if planes:
        settings["MRC_PLANES"] = ",".join(planes)
    if emulated:
        settings["MRC_EMULATE"] = emulated
    if schedule is not None:
        count = len(planes) or len(list(filter(None, inherited.get("MRC_PLANES", "").split(",")))) or 1
        settings["MRC_FAULT_STEPS"] = fault_steps(schedule, count)
    return settings
