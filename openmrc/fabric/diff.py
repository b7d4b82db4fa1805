"""Compare what a switch has installed with what was planned."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from openmrc.errors import ConfigError
from openmrc.fabric.export.installed import Installed
from openmrc.fabric.export.targets import TARGETS
from openmrc.fabric.export.view import Options, view
from openmrc.fabric.tables import Action
from openmrc.fabric.usid import UsidPlan


@dataclass(frozen=True)
class Difference:
    """Hold what differs on one switch; entries are written `PREFIX ACTION INTERFACE`."""

    switch: str
    planned: int
    same: int
    missing: list[str]
    extra: list[str]
    wrong: list[dict[str, str]]
    ignored: int  # routes outside all uSID blocks

    @property
    def clean(self) -> bool:
        return not (self.missing or self.extra or self.wrong)


def compare(plan: UsidPlan, switch: int, target: str, dump: str, source: str, options: Options) -> Difference:
    """Read a dump of one switch and hold it against the plan."""
    reader = TARGETS[target].read if target in TARGETS else None
    if reader is None:
        known = ", ".join(name for name, each in TARGETS.items() if each.read)
        raise ConfigError(f"dumps of {target!r} cannot be read back; {known} can")
    port_name = TARGETS[target].port_name
    seen = view(plan, switch, options)
    wanted = {}
    for entry in seen.entries:
        interface = "" if entry.action == Action.UN else port_name(entry.port, options)
        wanted[entry.prefix] = Installed(entry.prefix, entry.action, interface)
    found = reader(dump, source)
    own = seen.loopback  # its /128 may stand among the routes
    ours = [each for each in found if _in_blocks(plan, each.prefix) and each.prefix != f"{own}/128"]
    return _sorted_out(plan.topology.name(switch), wanted, ours, len(found) - len(ours))


def _in_blocks(plan: UsidPlan, prefix: str) -> bool:
    block = int(ipaddress.IPv6Network(prefix).network_address) >> 96
    return any(sids.block == block for sids in plan.planes)


def _sorted_out(name: str, wanted: dict[str, Installed], ours: list[Installed], ignored: int) -> Difference:
    extra: list[str] = []
    wrong: list[dict[str, str]] = []
    seen: set[str] = set()
    for each in ours:
        planned = wanted.get(each.prefix)
        if planned is None or each.prefix in seen:
            extra.append(_text(each))
            continue
        seen.add(each.prefix)
        if planned.action != each.action or (planned.interface and each.interface not in (planned.interface, "")):
            wrong.append({"planned": _text(planned), "installed": _text(each)})
    missing = [_text(planned) for prefix, planned in wanted.items() if prefix not in seen]
    same = len(seen) - len(wrong)
    return Difference(name, len(wanted), same, missing, extra, wrong, ignored)


def _text(each: Installed) -> str:
    return f"{each.prefix} {each.action.name.lower()} {each.interface}".rstrip()
