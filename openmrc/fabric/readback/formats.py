"""Detect the format of a file from its suffix and content, and select its reader and its plan."""

from collections.abc import Callable
from dataclasses import dataclass

from openmrc.base.documents import parse_json
from openmrc.errors import ConfigError
from openmrc.fabric.export.targets import TARGETS
from openmrc.fabric.export.view import PortName, SwitchView
from openmrc.fabric.readback import kernel_state, lines, routes, sonic, statements
from openmrc.fabric.readback.dump import ROUTES, SIDS, Difference, Matters, Sections, compare
from openmrc.fabric.readback.forwarding import Forwarding, Installing

Reader = Callable[[str, str], Sections]


@dataclass(frozen=True)
class Format:
    """How to read a target's files, and what their sections install."""

    readers: dict[str, Reader]  # by suffix, as in the export
    part: str  # what the files consist of
    install: Callable[[Installing, Sections], None]
    matters: Callable[[SwitchView, PortName], Matters] = statements.matters
    normal: Callable[[Sections, Sections], Sections] = lambda found, planned: found  # of sections, beside the planned
    also_read: frozenset[str] = frozenset()  # sections beside what is planned


def _lines(read: Callable[[str], Sections]) -> Reader:
    return lambda text, source: read(text)


_KERNEL: dict[str, Reader] = {kind: _lines(lines.batch(kind)) for kind in ("links", "sysctl", "batch", "tc")}
_SONIC_READ = frozenset(("VLAN_MEMBER", "PORTCHANNEL_MEMBER", "ACL_TABLE", "ACL_RULE"))
FORMATS = {
    "sonic": Format({"json": sonic.read}, "table", sonic.install, sonic.matters, sonic.normal, _SONIC_READ),
    "frr": Format({"conf": _lines(lines.blocks), **_KERNEL}, "block", statements.frr),
    "cumulus": Format({"nvue": _lines(lines.commands)}, "commands", statements.cumulus),
    "linux": Format(_KERNEL, "file", statements.linux),
    "eos": Format({"eos": _lines(lines.blocks)}, "block", statements.eos),
}
KERNELS = ("linux", "frr")  # targets on which Linux itself forwards


def format_of(target: str) -> Format:
    """Return a target's format; ConfigError for an unknown one."""
    if target not in FORMATS:
        raise ConfigError(f"dumps of {target!r} cannot be read back; {', '.join(FORMATS)} can")
    return FORMATS[target]


def is_running(text: str) -> bool:
    """Return whether a text is JSON of routes, SIDs or a kernel's state, rather than a configuration."""
    begin = text.lstrip()[:4096]
    words = ('"behavior"', '"protocol"', '"nftables"')
    return begin.startswith("[") or (
        begin.startswith("{") and (any(word in begin for word in words) or begin.rstrip() == "{}")
    )


def read_running(target: str, text: str, source: str) -> Sections:
    """Read routes, SIDs or other state of a running system."""
    dump = parse_json(text, source)
    found = kernel_state.read(dump, source) if target in KERNELS else None
    if found is not None:
        return found
    is_kernel = target == "linux" or text.lstrip().startswith("[")
    return routes.of_kernel(dump, source) if is_kernel else routes.of_frr(dump, source)


def compare_running(into: Difference, switch: SwitchView, target: str, found: Sections) -> None:
    """Add how routes, SIDs and state of a running system differ from the plan."""
    name = TARGETS[target].port_name
    planned = {section: rows for section, rows in routes.planned(switch, name).items() if section in found}
    entries = {section: rows for section, rows in found.items() if section in (ROUTES, SIDS)}
    compare(into, planned, routes.comparable(entries, switch, name), routes.matters(switch))
    state = kernel_state.planned(switch, name, found)
    compare(into, state, kernel_state.comparable(switch, name, found), lambda *item: True)


def compare_files(into: Difference, switch: SwitchView, target: str, planned: Sections, found: Sections) -> None:
    """Add how a configuration differs from the planned one."""
    form = FORMATS[target]
    compare(into, planned, form.normal(found, planned), form.matters(switch, TARGETS[target].port_name))


def unchecked(target: str, configured: Sections, planned: Sections, running: Sections) -> list[str]:
    """Return what a dump has that nobody looks at, and what it cannot show."""
    form = FORMATS[target]
    known = planned.keys() | form.also_read
    found = [f"{form.part} {section}" for section in configured if section not in known]
    if target in KERNELS:
        unread = [*(["routes"] if ROUTES not in running else []), *kernel_state.not_read(running)]
        found += [f"running kernel: {', '.join(unread)}"] if unread else []
    elif running:
        found.append("packet filters and VRFs of the running system: its routes were read, nothing else")
    return found


def forwarding(
    switch: SwitchView, target: str, planned: Sections, configured: Sections, running: Sections
) -> Forwarding:
    """Return the installed entries: from the running system if available, otherwise from the configuration."""
    installing = Installing(switch, TARGETS[target].port_name)
    if ROUTES in running or SIDS in running:
        routes.install(installing, running)
    else:
        FORMATS[target].install(installing, {**FORMATS[target].normal(configured, planned), **running})
    return installing.found
