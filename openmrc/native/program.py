"""The environment in which a program of others finds our device instead of, or beside, those of the kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from openmrc.base.faults import Impairment, OverlappingImpairments, Schedule
from openmrc.errors import ConfigError, UsageError
from openmrc.live.host.addresses import PlaneAddress, names_port
from openmrc.live.host.impairments import in_engine_units
from openmrc.live.host.interfaces import Interface, interface_of, interfaces

WORDS = tuple(in_engine_units(Impairment()))  # of a step, in this order, as in native/src/endpoint/faults.c


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
        settings["MRC_FAULT_STEPS"] = fault_steps(schedule, len(_chosen(settings)) or 1)
    return settings


def fault_steps(schedule: Schedule, planes: int) -> str:
    """Return "at_ps plane down delay jitter rate loss ...; ..." in order of time; ConfigError for an unknown plane.

    Each step says all that happens to the arrivals of one plane, until the next one about that plane.
    """
    layers = [OverlappingImpairments() for _ in range(planes)]
    steps = []
    for step in schedule.steps:
        for plane in step.planes(planes):
            layers[plane].apply(step)
            values = in_engine_units(layers[plane].now)
            steps.append(" ".join(map(str, (step.at, plane, *values.values()))))
    return ";".join(steps)


def check_planes(settings: Mapping[str, str], field: str) -> None:
    """Raise UsageError if the library could not open these planes: now, not when the program opens the device."""
    for text in _chosen(settings):
        if names_port(text):
            raise UsageError(f"{field}: {text}: planes are named without a port; MRC_PORT is the first UDP port of all")
        if _interface_of(text) is None:
            ours = ", ".join(str(each.address) for each in interfaces() if not each.is_loopback and not each.scope)
            raise UsageError(f"{field}: {text} is no address of this machine, which has {ours or 'the loopback only'}")


def _chosen(settings: Mapping[str, str]) -> list[str]:
    return settings.get("MRC_PLANES", "").replace(",", " ").split()


def _interface_of(text: str) -> Interface | None:
    try:
        address = PlaneAddress.parse(text)
    except ConfigError:
        return None
    return interface_of(address.ip, address.scope)
