"""Read what the kernel of one namespace does with packets: routes, rules, ports, neighbours, filters, queues, sysctls.

The namespace need not be of a lab: a container's or one made by hand will do, if it has a name (ip-netns(8)).
"""

import contextlib
import functools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from openmrc.base.documents import parse_json
from openmrc.errors import ConfigError
from openmrc.fabric.export.kernel import sysctls
from openmrc.fabric.export.view import SwitchView, linux_port
from openmrc.fabric.readback import kernel_state, queues, routes
from openmrc.fabric.readback.dump import Sections
from openmrc.fabric.readback.forwarding import mtu_too_small
from openmrc.lab.namespaces import fresh, inside

_PATIENCE = 30.0  # s for one command
_DISCOVERY_S = 5.0  # three solicitations, a second apart, of which the last is waited for (RFC 4861 section 10)
_PAUSE_S = 0.05
_LEGACY = Path("/proc/thread-self/net/ip6_tables_names")
COMMANDS = (  # those of `kernel_state`, each with its section
    (kernel_state.RULES, ("ip", "-6", "-j", "rule", "show")),
    (kernel_state.PORTS, ("ip", "-j", "-d", "address", "show")),
    (kernel_state.NEIGHBOURS, ("ip", "-6", "-j", "neigh", "show", "nud", "all")),
    (kernel_state.FILTERS, ("nft", "-j", "list", "ruleset")),
)
_ROUTES = ("ip", "-6", "-j", "route", "show", "table")
_OF_TC = ("tc", "-j", "-d", "qdisc", "show")
_OF_LEGACY = "ip6tables-legacy-save"
_SYS = Path("/proc/sys/net")
# Sysctls of the kernel's documentation (ip-sysctl) that touch no forwarded packet and no discovery of a neighbour. Any
# other one that differs from a namespace that nobody has changed counts, known here or not.
_HARMLESS = frozenset((
    "accept_dad", "accept_ra", "accept_ra_defrtr", "accept_ra_from_local", "accept_ra_min_hop_limit",
    "accept_ra_min_lft", "accept_ra_mtu", "accept_ra_pinfo", "accept_ra_rt_info_max_plen", "accept_ra_rt_info_min_plen",
    "accept_ra_rtr_pref", "accept_redirects", "accept_source_route", "addr_gen_mode", "autoconf", "dad_transmits",
    "disable_policy", "enhanced_dad", "force_mld_version", "force_tllao", "forwarding", "hop_limit", "ioam6_id",
    "ioam6_id_wide", "keep_addr_on_down", "max_addresses", "max_desync_factor", "mldv1_unsolicited_report_interval",
    "mldv2_unsolicited_report_interval", "ndisc_notify", "ndisc_tclass", "optimistic_dad", "ra_defrtr_metric",
    "ra_honor_pio_life", "ra_honor_pio_pflag", "regen_max_retry", "regen_min_advance", "router_probe_interval",
    "router_solicitation_delay", "router_solicitation_interval", "router_solicitation_max_interval",
    "router_solicitations", "seg6_enabled", "stable_secret", "suppress_frag_ndisc", "temp_prefered_lft",
    "temp_valid_lft", "use_oif_addrs_only", "use_optimistic", "use_tempaddr",
    "anycast_delay", "app_solicit", "base_reachable_time", "base_reachable_time_ms", "delay_first_probe_time",
    "gc_stale_time", "interval_probe_time_ms", "locktime", "mcast_resolicit", "proxy_delay", "proxy_qlen",
))  # fmt: skip


def read_state(switch: SwitchView, namespace: str) -> Sections:
    """Return routes and state of a switch's namespace; ConfigError if a command fails."""
    found = routes.of_kernel(_json(namespace, (*_ROUTES, "main")), namespace)
    found |= routes.of_local(_json(namespace, (*_ROUTES, "local")), namespace)
    for section, command in COMMANDS:
        if shutil.which(command[0]) is not None:  # otherwise its section is missing, and listed as not looked at
            dump = _json(namespace, command)
            found[section] = (kernel_state.read(dump, namespace) or {}).get(section, {})
    found[kernel_state.NEIGHBOURS] |= _asked(switch, namespace, found)
    ports = [name for name in map(linux_port, switch.layout.ports) if name in found[kernel_state.PORTS]]
    policies, defaults = (_run(namespace, ("ip", "xfrm", "policy", *what)) for what in ((), ("getdefault",)))
    found |= kernel_state.of_xfrm(policies, defaults)
    classes = "\n".join(f"# {port}\n{_run(namespace, ('tc', 'class', 'show', 'dev', port))}" for port in ports)
    found |= queues.of_tc(_json(namespace, _OF_TC), classes, _filters(namespace, ports))
    with inside(namespace):
        legacy = _LEGACY.read_text(encoding="ascii") if _LEGACY.exists() else ""
        settings = "\n".join(_settings(switch))
        found[kernel_state.UNUSUAL] = unusual_settings(_values(ports), _kernel_defaults())
    rules = _run(namespace, (_OF_LEGACY,)) if legacy and shutil.which(_OF_LEGACY) else None
    return found | kernel_state.of_settings(settings) | kernel_state.of_legacy(legacy, rules)


def _asked(switch: SwitchView, namespace: str, found: Sections) -> dict[str, Any]:
    """Return neighbours that no packet had asked for, after the kernel has looked for them (ip-neighbour(8))."""
    known = found[kernel_state.NEIGHBOURS]
    wanted = [f"{switch.peer_addresses[port.number]} {linux_port(port)}" for port in switch.layout.ports]
    wanted = [key for key in wanted if not known.get(key, {}).get("lladdr")]
    wanted = [key for key in wanted if key.partition(" ")[2] in found[kernel_state.PORTS]]
    if not wanted:
        return {}
    lines = "".join(f"neighbor replace {key.replace(' ', ' dev ')} use\n" for key in wanted)
    _run(namespace, ("ip", "-6", "-force", "-batch", "-"), lines, may_fail=True)  # a port that is down has none
    deadline = time.monotonic() + _DISCOVERY_S
    while True:
        dump = _json(namespace, dict(COMMANDS)[kernel_state.NEIGHBOURS])
        rows = (kernel_state.read(dump, namespace) or {}).get(kernel_state.NEIGHBOURS, {})
        shown = {key: rows[key] for key in wanted if key in rows}
        if time.monotonic() > deadline or not any("INCOMPLETE" in row.get("state", ()) for row in shown.values()):
            return shown
        time.sleep(_PAUSE_S)


def _settings(switch: SwitchView) -> Iterator[str]:
    """Yield the sysctls that the plan sets, as they are, and which hooks of filters its packets meet."""
    lines = sysctls(switch.layout, linux_port).splitlines()
    for key in (*(line.partition(" = ")[0] for line in lines), kernel_state.HOOKS_OF_TUNNELS):
        with contextlib.suppress(OSError):
            yield f"{key} = {Path('/proc/sys', key.replace('.', '/')).read_text(encoding='ascii').strip()}"


def _values(ports: Sequence[str]) -> dict[str, str]:
    """Return the sysctls of this thread's namespace that may keep packets from their routes."""
    folders = ["ipv6/conf/all", *(f"ipv6/{kind}/{port}" for port in ports for kind in ("conf", "neigh"))]
    paths = [path for folder in folders for path in Path(_SYS, folder).glob("*")]
    found = {}
    for path in paths:
        if path.name not in _HARMLESS:
            with contextlib.suppress(OSError):
                found["net." + ".".join(path.relative_to(_SYS).parts)] = path.read_text(encoding="ascii").strip()
    return found


@functools.cache
def _kernel_defaults() -> dict[str, str]:
    """Return the sysctls of a namespace that nobody has changed; the one of this thread stays as it is."""
    with fresh():
        return _values(["default", "lo"])


def _filters(namespace: str, ports: Sequence[str]) -> dict[str, Any]:
    """Return the filters of every port, by port and direction; those of its queues by port alone."""
    asked = [f"{port}{where}" for port in ports for where in ("", " ingress", " egress")]
    said = _run(namespace, ("tc", "-j", "-batch", "-"), "".join(f"filter show dev {each}\n" for each in asked))
    shown, at, decoder = [], 0, json.JSONDecoder()
    while (at := len(said) - len(said[at:].lstrip())) < len(said):
        try:
            rows, at = decoder.raw_decode(said, at)
        except ValueError as error:
            raise ConfigError(f"tc -j filter show in {namespace}: {error}: {said[at : at + 60]!r}") from None
        shown.append(rows)
    return dict(zip(asked, shown, strict=True))


def _json(namespace: str, command: Sequence[str]) -> Any:
    return parse_json(_run(namespace, command) or "[]", f"{' '.join(command)} in {namespace}")


def _run(namespace: str, command: Sequence[str], given: str = "", *, may_fail: bool = False) -> str:
    said = f"{' '.join(command)} in {namespace}"
    try:
        with inside(namespace):
            done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{said}: {error}") from None
    if done.returncode and not may_fail:
        raise ConfigError(f"{said}: {done.stderr.strip()}")
    return done.stdout


def unusual_settings(found: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the settings that differ; `defaults` has those of every port as `default`, of its neighbours as `lo`."""
    shown: dict[str, tuple[str, ...]] = {}
    for key, value in found.items():
        begin, _, last = key.rpartition(".")
        kind = begin.rpartition(".")[0] or begin
        if last == "mtu" and key not in defaults:
            differs = mtu_too_small(value)
        else:
            known = (f"{kind}.default.{last}", f"{kind}.lo.{last}", key)
            differs = value != next((defaults[each] for each in known if each in defaults), value)
        if differs:
            shown[key] = (value,)
    return shown
