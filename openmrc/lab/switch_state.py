"""Read what the kernel of one namespace does with packets: routes, rules, ports, neighbours, filters, sysctls.

The namespace need not be of a lab: a container's or one made by hand will do, if it has a name (ip-netns(8)).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from openmrc.documents import parse_json
from openmrc.errors import ConfigError
from openmrc.fabric.export.systems.kernel import sysctls
from openmrc.fabric.export.view import SwitchView, linux_port
from openmrc.fabric.readback import kernel_state, routes
from openmrc.fabric.readback.dump import Sections
from openmrc.lab.namespaces import inside

_PATIENCE = 30.0  # s for one command
_LEGACY = Path("/proc/thread-self/net/ip6_tables_names")
COMMANDS = (  # those of `kernel_state`, each with its section
    (kernel_state.RULES, ("ip", "-6", "-j", "rule", "show")),
    (kernel_state.PORTS, ("ip", "-j", "-d", "address", "show")),
    (kernel_state.NEIGHBOURS, ("ip", "-6", "-j", "neigh", "show", "nud", "permanent")),
    (kernel_state.FILTERS, ("nft", "-j", "list", "ruleset")),
)


def read_state(switch: SwitchView, namespace: str) -> Sections:
    """Return routes and state of a switch's namespace; ConfigError if a command fails."""
    found = routes.of_kernel(_json(namespace, ("ip", "-6", "-j", "route", "show", "table", "main")), namespace)
    for section, command in COMMANDS:
        if shutil.which(command[0]) is not None:  # otherwise its section is missing, and listed as not checked
            dump = _json(namespace, command)
            found[section] = (kernel_state.read(dump, namespace) or {}).get(section, {})
    ports = [name for name in map(linux_port, switch.layout.ports) if name in found[kernel_state.PORTS]]
    with inside(namespace):
        legacy = _LEGACY.read_text(encoding="ascii") if _LEGACY.exists() else ""
        settings = "\n".join(_settings(switch))
    policies = _run(namespace, ("ip", "xfrm", "policy"))
    return found | kernel_state.of_namespace(settings, _filters(namespace, ports), legacy, policies)


def _settings(switch: SwitchView) -> Iterator[str]:
    """Yield the sysctls that the plan sets, as they are."""
    for line in sysctls(switch.layout, linux_port).splitlines():
        key = line.partition(" = ")[0]
        with contextlib.suppress(OSError):
            yield f"{key} = {Path('/proc/sys', key.replace('.', '/')).read_text(encoding='ascii').strip()}"


def _filters(namespace: str, ports: Sequence[str]) -> dict[str, Any]:
    """Return the filters of every port, by port and direction; those of its queues by port alone."""
    asked = [f"{port}{where}" for port in ports for where in ("", " ingress", " egress")]
    said = _run(namespace, ("tc", "-j", "-batch", "-"), "".join(f"filter show dev {each}\n" for each in asked))
    shown, at, decoder = [], 0, json.JSONDecoder()
    while (at := len(said) - len(said[at:].lstrip())) < len(said):
        rows, at = decoder.raw_decode(said, at)
        shown.append(rows)
    return dict(zip(asked, shown, strict=True))


def _json(namespace: str, command: Sequence[str]) -> Any:
    return parse_json(_run(namespace, command) or "[]", f"{' '.join(command)} in {namespace}")


def _run(namespace: str, command: Sequence[str], given: str = "") -> str:
    said = f"{' '.join(command)} in {namespace}"
    try:
        with inside(namespace):
            done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{said}: {error}") from None
    if done.returncode:
        raise ConfigError(f"{said}: {done.stderr.strip()}")
    return done.stdout
