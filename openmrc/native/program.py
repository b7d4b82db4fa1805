"""The environment in which a program of others finds our device instead of, or beside, those of the kernel."""

import os
import shutil
import stat
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from openmrc.base.faults import Impairment, OverlappingImpairments, Schedule
from openmrc.errors import ConfigError, UsageError
from openmrc.live.host.addresses import PlaneAddress, names_port
from openmrc.live.host.impairments import in_engine_units, planes_of
from openmrc.live.host.interfaces import Interface, interface_of, interfaces

_ELF64 = struct.Struct("<16sHHIQQQIHHH")  # up to e_phnum, elf(5)
_PROGRAM_HEADER = struct.Struct("<IIQQQQ")  # up to p_memsz
_INTERPRETER = 3  # PT_INTERP
WORDS = tuple(in_engine_units(Impairment()))  # of a step, in this order, as in native/src/endpoint/faults.c


def environment(
    inherited: Mapping[str, str], library: Path, planes: Sequence[str], schedule: Schedule | None, emulated: str = ""
) -> dict[str, str]:
    """Return `inherited` with the library preloaded and its settings; what is not given stays as it is.

    ConfigError: the schedule names a plane that is not there, or what no endpoint does.
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
    """Return "at_ps plane down delay jitter rate loss ...; ..." in order of time; ConfigError as of `planes_of`.

    Each step says all that happens to the arrivals of one plane, until the next one about that plane.
    """
    layers = [OverlappingImpairments() for _ in range(planes)]
    steps = []
    for step in schedule.steps:
        for plane in planes_of(step, planes):
            layers[plane].apply(step)
            values = in_engine_units(layers[plane].now)
            steps.append(" ".join(map(str, (step.at, plane, *values.values()))))
    return ";".join(steps)


def check_program(name: str) -> None:
    """Raise UsageError if the loader would not preload the library into this program."""
    path = shutil.which(name)
    if path is None:
        return
    with open(path, "rb") as file:
        content = file.read(1 << 16)
        mode = os.fstat(file.fileno()).st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != 0:
        raise UsageError(f"{name}: runs with the rights of another user, so the loader preloads nothing into it")
    loader = _loader(content)
    if loader == "":
        raise UsageError(f"{name}: is linked statically, so no library can be preloaded; link it with libmrc")
    if loader is not None and "musl" in loader:
        raise UsageError(f"{name}: is linked with musl; the library needs glibc")


def _loader(content: bytes) -> str | None:
    """Return the loader that a program asks for, "" for none; None if this is no program of 64 bits."""
    if len(content) < _ELF64.size or content[:5] != b"\x7fELF\x02":
        return None
    _, _, _, _, _, first, _, _, _, size, count = _ELF64.unpack_from(content)
    for number in range(count):
        at = first + number * size
        if at + _PROGRAM_HEADER.size > len(content):
            return None
        kind, _, begin, _, _, length = _PROGRAM_HEADER.unpack_from(content, at)
        if kind == _INTERPRETER:
            return content[begin : begin + length].rstrip(b"\0").decode(errors="replace")
    return ""


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
