"""FRR: locators, static SIDs and static routes (FRR user guide, zebra and static; 10.3 and up).

`block-len` is always written: left out, FRR takes 24. FRR's uN is End with the NEXT-C-SID flavour only. A switch with
several uSIDs (parallel links) has a locator for each, since a uN must lie inside its locator.
"""

from __future__ import annotations

import re
from typing import Any

from openmrc.documents import parse_json
from openmrc.errors import ConfigError
from openmrc.fabric.export.installed import Installed, normal_prefix
from openmrc.fabric.export.view import SwitchView, linux_port
from openmrc.fabric.tables import Action

_SID = re.compile(r"^sid (\S+) locator \S+ behavior (\S+)(?:.* interface (\S+))?")
_ROUTE = re.compile(r"^ipv6 route (\S+) (\S+)(?: (\S+))?$")
_ACTIONS = {"uN": Action.UN, "uA": Action.UA}


def locator_name(index: int) -> str:
    """Name the locator of a switch's n-th uSID."""
    return "MRC" if index == 0 else f"MRC{index}"


def emit(switch: SwitchView) -> dict[str, str]:
    """Return the integrated configuration of one switch."""
    lines = ["frr version 10.4", "frr defaults datacenter", f"hostname {switch.name}", "!"]
    for entry in switch.entries:
        if entry.action == Action.ROUTE:
            device = linux_port(entry.port, switch.options)
            lines.append(f"ipv6 route {entry.prefix} {switch.port(entry.port).peer_address} {device}")
    lines += ["!", "segment-routing", " srv6", "  locators"]
    for index, prefix in enumerate(switch.own):
        lines += [f"   locator {locator_name(index)}", f"    prefix {prefix} block-len 32 node-len 16 func-bits 16"]
        lines += ["    behavior usid", "   exit", "   !"]
    lines += ["  exit", "  !", "  static-sids"]
    for index, prefix in enumerate(switch.own):
        lines.append(f"   sid {prefix} locator {locator_name(index)} behavior uN")
    for entry in switch.entries:
        if entry.action == Action.UA:
            where = f"interface {linux_port(entry.port, switch.options)} nexthop {switch.port(entry.port).peer_address}"
            lines.append(f"   sid {entry.prefix} locator {locator_name(0)} behavior uA {where}")
    lines += ["  exit", "  !", "  encapsulation", f"   source-address {switch.loopback}", "  exit", "  !"]
    lines += [" exit", " !", "exit", "!", "end"]
    return {"conf": "\n".join(lines) + "\n"}


def read(text: str, source: str) -> list[Installed]:
    """Read a running configuration, or the JSON of `show segment-routing srv6 sid` or `show ipv6 route`."""
    if text.lstrip().startswith(("{", "[")):
        return _read_json(parse_json(text, source), source)
    found = []
    for line in (raw.strip() for raw in text.splitlines()):
        if match := _SID.match(line):
            action = _ACTIONS.get(match.group(2))
            if action is None:
                raise ConfigError(f"{source}: behavior {match.group(2)!r}; uN and uA are known")
            found.append(Installed(normal_prefix(match.group(1), source), action, match.group(3) or ""))
        elif match := _ROUTE.match(line):
            prefix, gateway, device = match.groups()
            found.append(Installed(normal_prefix(prefix, source), Action.ROUTE, device or gateway))
    return found


def _read_json(dump: Any, source: str) -> list[Installed]:
    """Take SIDs or routes, whichever the dump has; both are objects keyed by prefix."""
    if not isinstance(dump, dict):
        raise ConfigError(f"{source}: expected the object that FRR prints")
    found = []
    for key, value in dump.items():
        entry = value[0] if isinstance(value, list) and value else value
        if not isinstance(entry, dict):
            continue
        if "behavior" in entry:
            action = _ACTIONS.get(str(entry["behavior"]))
            if action is not None:
                found.append(Installed(normal_prefix(str(entry.get("sid", key)), source), action, _interface(entry)))
        elif entry.get("protocol") == "static" and "/" in key:
            found.append(Installed(normal_prefix(key, source), Action.ROUTE, _interface(entry)))
    return found


def _interface(entry: dict[str, Any]) -> str:
    for hop in [entry, *entry.get("nexthops", []), *entry.get("context", [])]:
        if isinstance(hop, dict):
            for key in ("interfaceName", "interface"):
                if key in hop:
                    return str(hop[key])
    return ""
